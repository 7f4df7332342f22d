// Vercel's AI SDK with a tool that has no execute(): calling it is the answer.
import { readFileSync } from "node:fs";
import { createMCPClient } from "@ai-sdk/mcp";
import { openai } from "@ai-sdk/openai";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

const { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const [system, request] = messages.map((m) => m.content);

const mcp = await createMCPClient({ transport: { type: "http", url: process.env.ART_MCP_URL } });
const { reply, ...tools } = await mcp.tools();
const answer = tool({ description: "Answer.", inputSchema: z.object({ answer: z.string() }) });
const { toolCalls } = await generateText({
  model: openai("gpt-5-mini"),
  instructions: system,
  prompt: request,
  tools: { ...tools, answer },
  toolChoice: "required",
  stopWhen: isStepCount(20),
});
console.log(toolCalls.at(-1).input);
await mcp.close();
