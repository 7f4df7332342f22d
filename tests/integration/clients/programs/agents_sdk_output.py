"""OpenAI's Agents SDK with an output type (constrained decoding), and a guardrail behind it."""

import asyncio
import json
import os

from agents import Agent, GuardrailFunctionOutput, Runner, output_guardrail, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter
from pydantic import BaseModel

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])
set_tracing_disabled(True)


class Answer(BaseModel):
    answer: str


judge = Agent(name="judge", instructions="Is the answer polite? Say yes or no.")


@output_guardrail
async def polite(context, agent, output: Answer) -> GuardrailFunctionOutput:
    said = (await Runner.run(judge, output.answer)).final_output
    return GuardrailFunctionOutput(output_info=said, tripwire_triggered=said == "no")


async def main() -> None:
    async with MCPServerStreamableHttp(
        params={"url": os.environ["ART_MCP_URL"]},
        tool_filter=create_static_tool_filter(blocked_tool_names=["reply"]),
    ) as tools:
        agent = Agent(
            name="desk",
            instructions=system,
            mcp_servers=[tools],
            output_type=Answer,
            output_guardrails=[polite],
        )
        print((await Runner.run(agent, request, max_turns=20)).final_output)


asyncio.run(main())
