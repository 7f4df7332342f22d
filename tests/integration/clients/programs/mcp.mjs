// The official MCP client for TypeScript finds and calls the env's tools; OpenAI's package asks.
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import OpenAI from "openai";

const { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const mcp = new Client({ name: "desk", version: "1.0.0" });
await mcp.connect(new StreamableHTTPClientTransport(new URL(process.env.ART_MCP_URL)));
const tools = (await mcp.listTools()).tools
  .filter((tool) => tool.name !== "reply")
  .map(({ name, description, inputSchema }) => ({
    type: "function",
    function: { name, description, parameters: inputSchema },
  }));

const client = new OpenAI();
for (let n = 0; n < 20; n++) {
  const answer = await client.chat.completions.create({ model: "gpt-5-mini", messages, tools });
  const { message } = answer.choices[0];
  messages.push(message);
  if (!message.tool_calls?.length) {
    await mcp.callTool({ name: "reply", arguments: { text: message.content ?? "" } });
    break;
  }
  for (const call of message.tool_calls) {
    const args = JSON.parse(call.function.arguments);
    const { content } = await mcp.callTool({ name: call.function.name, arguments: args });
    messages.push({ role: "tool", tool_call_id: call.id, content: content[0].text });
  }
}
await mcp.close();
