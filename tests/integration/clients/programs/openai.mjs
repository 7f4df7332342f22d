// OpenAI's npm package: a loop of one's own, streamed, and the env's tools by plain HTTP.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const { messages, tools } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));

async function callTool(name, args) {
  const params = { name, arguments: JSON.parse(args) };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const response = await fetch(process.env.ART_MCP_URL, { method: "POST", body });
  return (await response.json()).result.content[0].text;
}

const client = new OpenAI();
for (let n = 0; n < 20; n++) {
  const stream = client.chat.completions.stream({ model: "gpt-5-mini", messages, tools });
  const { message } = (await stream.finalChatCompletion()).choices[0];
  messages.push(message);
  if (!message.tool_calls?.length) break; // its last words are the answer
  for (const call of message.tool_calls) {
    const content = await callTool(call.function.name, call.function.arguments);
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
