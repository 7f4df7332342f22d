"""The order desk's agent with OpenAI's Python client, streaming, and tools from the MCP server."""

import json
import os
import urllib.request

from openai import LengthFinishReasonError, OpenAI

client = OpenAI()
with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)
messages = task["messages"]


def call_tool(name: str, arguments: str) -> str:
    params = {"name": name, "arguments": json.loads(arguments)}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = urllib.request.Request(os.environ["ART_MCP_URL"], json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]


for _ in range(5):
    with client.chat.completions.stream(
        model="policy", messages=messages, tools=task["tools"]
    ) as stream:
        for _ in stream:
            pass
        try:
            message = stream.get_final_completion().choices[0].message
        except LengthFinishReasonError as cut:  # this client raises on a turn that did not end
            message = cut.completion.choices[0].message
    messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        result = call_tool(call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
