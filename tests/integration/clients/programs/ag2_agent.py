"""AG2, and tools over MCP."""

import asyncio
import json
import os

from ag2 import Agent
from ag2.config import OpenAIConfig
from ag2.tools.toolkits.mcp_server import MCPServerConfig, MCPToolkit

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])

server = MCPServerConfig(server_url=os.environ["ART_MCP_URL"], blocked_tools=["reply"])
agent = Agent(
    "desk", prompt=system, config=OpenAIConfig(model="gpt-5-mini"), tools=[MCPToolkit(server)]
)


async def main() -> None:
    print((await agent.ask(request)).body)


asyncio.run(main())
