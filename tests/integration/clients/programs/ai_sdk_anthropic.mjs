// Vercel's AI SDK with @ai-sdk/anthropic, and tools over MCP.
import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createMCPClient } from "@ai-sdk/mcp";
import { generateText, isStepCount } from "ai";

const { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const [system, request] = messages.map((m) => m.content);
// It wants the address with /v1, where Anthropic's own packages want it without.
const anthropic = createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` });

const mcp = await createMCPClient({ transport: { type: "http", url: process.env.ART_MCP_URL } });
const { reply, ...tools } = await mcp.tools();
const { text } = await generateText({
  model: anthropic("claude-sonnet-4-6"),
  instructions: system,
  prompt: request,
  tools,
  stopWhen: isStepCount(20),
});
console.log(text);
await mcp.close();
