"""The official MCP client finds and calls the env's tools; OpenAI's package asks the policy."""

import asyncio
import json
import os

from mcp import Client
from openai import AsyncOpenAI


async def main() -> None:
    with open(os.environ["ART_SCENARIO_FILE"]) as file:
        messages = json.load(file)["messages"]
    async with Client(os.environ["ART_MCP_URL"]) as server, AsyncOpenAI() as llm:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": t.name,
                    "description": t.description,
                    "parameters": t.input_schema,
                },
            }
            for t in (await server.list_tools()).tools
            if t.name != "reply"
        ]
        for _ in range(20):
            async with llm.chat.completions.stream(
                model="gpt-5-mini", messages=messages, tools=tools
            ) as stream:
                message = (await stream.get_final_completion()).choices[0].message
            messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            if not message.tool_calls:
                await server.call_tool("reply", {"text": message.content or ""})
                return
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = await server.call_tool(call.function.name, arguments)
                text = result.content[0].text
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


asyncio.run(main())
