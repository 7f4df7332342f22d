"""OpenAI's Python package: a loop of one's own, and the env's tools by plain HTTP."""

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
for _ in range(20):
    answer = client.chat.completions.create(
        model="gpt-5-mini", messages=messages, tools=task["tools"]
    )
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = call_tool(call.function.name, json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        break  # its last words are the answer
