// An agent as one may have it already: OpenAI's client, streaming, and tools behind an MCP server.
// It knows nothing of training. OPENAI_BASE_URL, ART_MCP_URL and ART_SCENARIO_FILE are all it gets.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const MAX_TURNS = 5;
const client = new OpenAI();
let { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));

async function mcp(method, params) {
  const response = await fetch(process.env.ART_MCP_URL, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  const { result, error } = await response.json();
  if (error) throw new Error(error.message);
  return result;
}

async function turn(tools) {
  const stream = client.chat.completions.stream({ model: "policy", messages, tools });
  return (await stream.finalChatCompletion()).choices[0].message;
}

const listed = (await mcp("tools/list", {})).tools.filter((tool) => tool.name !== "reply");
const tools = listed.map(({ name, description, inputSchema }) => ({
  type: "function",
  function: { name, description, parameters: inputSchema },
}));

for (let n = 0; n < MAX_TURNS; n++) {
  const message = await turn(tools);
  messages = [...messages, message];
  if (!message.tool_calls?.length) break; // the last words are the answer to the customer
  for (const call of message.tool_calls) {
    const { name, arguments: json } = call.function;
    const result = await mcp("tools/call", { name, arguments: JSON.parse(json) });
    messages.push({ role: "tool", tool_call_id: call.id, content: result.content[0].text });
  }
}
