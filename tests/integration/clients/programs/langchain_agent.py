"""LangChain: create_agent, and tools over MCP."""

import asyncio
import json
import os
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])


async def main() -> None:
    server = {"url": os.environ["ART_MCP_URL"], "transport": "streamable_http"}
    tools = await MultiServerMCPClient({"env": server}).get_tools()
    tools = [t for t in tools if t.name != "reply"]
    model = sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-5-mini"
    agent = create_agent(model, tools, system_prompt=system)
    done = await agent.ainvoke({"messages": [{"role": "user", "content": request}]})
    print(done["messages"][-1].content)


asyncio.run(main())
