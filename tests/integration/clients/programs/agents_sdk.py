"""OpenAI's Agents SDK as it is set up by default: the Responses API, tools over MCP."""

import asyncio
import json
import os

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])
set_tracing_disabled(True)  # traces would go to OpenAI


async def main() -> None:
    async with MCPServerStreamableHttp(
        params={"url": os.environ["ART_MCP_URL"]},
        tool_filter=create_static_tool_filter(blocked_tool_names=["reply"]),
    ) as tools:
        agent = Agent(name="desk", instructions=system, mcp_servers=[tools])
        result = await Runner.run(agent, request, max_turns=20)
        print(result.final_output)


asyncio.run(main())
