"""A conversation with a customer: what the assistant says goes to `reply`, which answers."""

import json
import os
import urllib.request

from openai import OpenAI

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)


def call_tool(name: str, arguments: dict) -> str:
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = urllib.request.Request(os.environ["ART_MCP_URL"], json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]


client, messages = OpenAI(), task["messages"]
for _ in range(40):
    answer = client.chat.completions.create(
        model="gpt-5-mini", messages=messages, tools=task["tools"]
    )
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = call_tool(call.function.name, json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        said = call_tool("reply", {"text": message.content})
        if said == "The episode is over.":
            break
        messages.append({"role": "user", "content": said})
