"""OpenAI's Agents SDK: an agent that has another one as its tool."""

import asyncio
import json
import os

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])
set_tracing_disabled(True)


async def main() -> None:
    async with MCPServerStreamableHttp(
        params={"url": os.environ["ART_MCP_URL"]},
        tool_filter=create_static_tool_filter(blocked_tool_names=["reply"]),
    ) as tools:
        desk = Agent(name="desk", instructions=system, mcp_servers=[tools])
        asked = desk.as_tool("ask_specialist", "Ask the one who knows.", max_turns=20)
        boss = Agent(name="boss", instructions="You pass requests on.", tools=[asked])
        print((await Runner.run(boss, request)).final_output)


asyncio.run(main())
