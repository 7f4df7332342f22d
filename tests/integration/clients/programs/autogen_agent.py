"""AutoGen: an AssistantAgent, and tools over MCP."""

import asyncio
import json
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import StreamableHttpServerParams, mcp_server_tools

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])


async def main() -> None:
    tools = await mcp_server_tools(StreamableHttpServerParams(url=os.environ["ART_MCP_URL"]))
    model = OpenAIChatCompletionClient(model="gpt-4.1")
    agent = AssistantAgent(
        "desk",
        model,
        tools=[t for t in tools if t.name != "reply"],
        system_message=system,
        max_tool_iterations=20,
    )
    result = await agent.run(task=request)
    print(result.messages[-1].to_text())
    await model.close()


asyncio.run(main())
