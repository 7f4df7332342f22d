"""Anthropic's Python package: its tool runner, and tools over MCP."""

import asyncio
import json
import os

from anthropic import AsyncAnthropic, beta_async_tool
from mcp import Client

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])


async def main() -> None:
    async with Client(os.environ["ART_MCP_URL"]) as server, AsyncAnthropic() as llm:

        def wrapped(tool):
            async def call(**arguments) -> str:
                return (await server.call_tool(tool.name, arguments)).content[0].text

            return beta_async_tool(
                call, name=tool.name, description=tool.description, input_schema=tool.input_schema
            )

        tools = [wrapped(t) for t in (await server.list_tools()).tools if t.name != "reply"]
        runner = llm.beta.messages.tool_runner(
            model="claude-sonnet-4-6",
            max_tokens=1024,
            system=system,
            messages=[{"role": "user", "content": request}],
            tools=tools,
        )
        print((await runner.until_done()).content)


asyncio.run(main())
