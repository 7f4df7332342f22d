"""OpenAI's Agents SDK with the chat API, streamed."""

import asyncio
import json
import os

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])
set_tracing_disabled(True)
set_default_openai_api("chat_completions")


async def main() -> None:
    async with MCPServerStreamableHttp(
        params={"url": os.environ["ART_MCP_URL"]},
        tool_filter=create_static_tool_filter(blocked_tool_names=["reply"]),
    ) as tools:
        agent = Agent(name="desk", instructions=system, mcp_servers=[tools])
        result = Runner.run_streamed(agent, request, max_turns=20)
        async for event in result.stream_events():
            print(event.type)


asyncio.run(main())
