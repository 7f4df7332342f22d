"""OpenAI's Python package with the Responses API, which keeps the conversation."""

import json
import os
import urllib.request

from openai import OpenAI

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)
system, request = (m["content"] for m in task["messages"])
tools = [{"type": "function", "strict": False, **t["function"]} for t in task["tools"]]


def call_tool(name: str, arguments: dict) -> str:
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = urllib.request.Request(os.environ["ART_MCP_URL"], json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]


client, new, before = OpenAI(), [{"role": "user", "content": request}], None
for _ in range(20):
    answer = client.responses.create(
        model="gpt-5-mini",
        instructions=system,
        input=new,
        tools=tools,
        previous_response_id=before,
    )
    before, new = answer.id, []
    for call in (item for item in answer.output if item.type == "function_call"):
        result = call_tool(call.name, json.loads(call.arguments))
        new.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    if not new:
        print(answer.output_text)
        break
