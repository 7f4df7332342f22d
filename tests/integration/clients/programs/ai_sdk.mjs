// Vercel's AI SDK with @ai-sdk/openai as it is set up by default (the Responses API), and tools over MCP.
import { readFileSync } from "node:fs";
import { createMCPClient } from "@ai-sdk/mcp";
import { openai } from "@ai-sdk/openai";
import { generateText, isStepCount } from "ai";

const { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const [system, request] = messages.map((m) => m.content);

const mcp = await createMCPClient({ transport: { type: "http", url: process.env.ART_MCP_URL } });
const { reply, ...tools } = await mcp.tools();
const { text } = await generateText({
  model: openai("gpt-5-mini"),
  instructions: system,
  prompt: request,
  tools,
  stopWhen: isStepCount(20),
});
console.log(text);
await mcp.close();
