// Anthropic's npm package: a loop of one's own, streamed, and the env's tools by plain HTTP.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";

const task = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const [system, request] = task.messages.map((m) => m.content);
const tools = task.tools.map(({ function: { name, description, parameters } }) => ({
  name,
  description,
  input_schema: parameters,
}));

async function callTool(name, args) {
  const params = { name, arguments: args };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const response = await fetch(process.env.ART_MCP_URL, { method: "POST", body });
  return (await response.json()).result.content[0].text;
}

const client = new Anthropic();
const messages = [{ role: "user", content: request }];
for (let n = 0; n < 20; n++) {
  const asked = { model: "claude-sonnet-4-6", max_tokens: 1024, system, messages, tools };
  const { content } = await client.messages.stream(asked).finalMessage();
  messages.push({ role: "assistant", content });
  const calls = content.filter((block) => block.type === "tool_use");
  if (!calls.length) break; // its last words are the answer
  const results = [];
  for (const { id, name, input } of calls)
    results.push({ type: "tool_result", tool_use_id: id, content: await callTool(name, input) });
  messages.push({ role: "user", content: results });
}
