"""pydantic-ai with the model's name alone, and tools over MCP."""

import asyncio
import json
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])


async def main() -> None:
    tools = MCPToolset(os.environ["ART_MCP_URL"]).filtered(lambda _, t: t.name != "reply")
    model = sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-5-mini"
    agent = Agent(model, system_prompt=system, toolsets=[tools])
    print((await agent.run(request)).output)


asyncio.run(main())
