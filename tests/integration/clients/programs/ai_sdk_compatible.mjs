// Vercel's AI SDK with @ai-sdk/openai-compatible (the chat API): a ToolLoopAgent, streamed.
import { readFileSync } from "node:fs";
import { createMCPClient } from "@ai-sdk/mcp";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { isStepCount, ToolLoopAgent } from "ai";

const { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const [system, request] = messages.map((m) => m.content);
const art = createOpenAICompatible({ name: "art", baseURL: process.env.OPENAI_BASE_URL });

const mcp = await createMCPClient({ transport: { type: "http", url: process.env.ART_MCP_URL } });
const { reply, ...tools } = await mcp.tools();
const model = art("policy");
const agent = new ToolLoopAgent({ model, instructions: system, tools, stopWhen: isStepCount(20) });
const result = await agent.stream({ prompt: request });
for await (const part of result.textStream) process.stdout.write(part);
await mcp.close();
