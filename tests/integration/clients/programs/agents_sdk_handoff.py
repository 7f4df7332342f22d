"""OpenAI's Agents SDK: the first agent hands over to the one who plays; a guardrail looks on."""

import asyncio
import json
import os

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    Runner,
    set_tracing_disabled,
)
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])
set_tracing_disabled(True)  # traces would go to OpenAI
guard = Agent(
    name="guard", instructions="Is this about an order? Say yes or no.", model="gpt-4.1-mini"
)


async def is_allowed(context, agent, asked) -> GuardrailFunctionOutput:
    said = (await Runner.run(guard, asked)).final_output
    return GuardrailFunctionOutput(output_info=said, tripwire_triggered="no" in said)


async def main() -> None:
    async with MCPServerStreamableHttp(
        params={"url": os.environ["ART_MCP_URL"]},
        tool_filter=create_static_tool_filter(blocked_tool_names=["reply"]),
    ) as tools:
        desk = Agent(name="desk", instructions=system, mcp_servers=[tools])
        front = Agent(
            name="front",
            instructions="You pass requests on.",
            handoffs=[desk],
            input_guardrails=[InputGuardrail(guardrail_function=is_allowed)],
        )
        print((await Runner.run(front, request, max_turns=20)).final_output)


asyncio.run(main())
