"""pydantic-ai with an output type: the answer is the call of a tool, final_result."""

import asyncio
import json
import os

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])


class Answer(BaseModel):
    answer: str


async def main() -> None:
    tools = MCPToolset(os.environ["ART_MCP_URL"]).filtered(lambda _, t: t.name != "reply")
    agent = Agent("openai:gpt-5-mini", system_prompt=system, toolsets=[tools], output_type=Answer)
    print((await agent.run(request)).output)


asyncio.run(main())
