// Vercel's AI SDK with structured output (constrained decoding).
import { readFileSync } from "node:fs";
import { createMCPClient } from "@ai-sdk/mcp";
import { openai } from "@ai-sdk/openai";
import { generateText, isStepCount, Output } from "ai";
import { z } from "zod";

const { messages } = JSON.parse(readFileSync(process.env.ART_SCENARIO_FILE, "utf8"));
const [system, request] = messages.map((m) => m.content);

const mcp = await createMCPClient({ transport: { type: "http", url: process.env.ART_MCP_URL } });
const { reply, ...tools } = await mcp.tools();
const { output } = await generateText({
  model: openai("gpt-5-mini"),
  instructions: system,
  prompt: request,
  tools,
  output: Output.object({ schema: z.object({ answer: z.string() }) }),
  stopWhen: isStepCount(20),
});
console.log(output);
await mcp.close();
