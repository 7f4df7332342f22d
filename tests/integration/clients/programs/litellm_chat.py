"""LiteLLM: one function for every provider; here OpenAI's, which the policy stands in for."""

import json
import os
import urllib.request

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it fetches a list of prices first
from litellm import completion

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)


def call_tool(name: str, arguments: dict) -> str:
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = urllib.request.Request(os.environ["ART_MCP_URL"], json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]


messages = task["messages"]
for _ in range(20):
    answer = completion("openai/gpt-5-mini", messages=messages, tools=task["tools"])
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = call_tool(call.function.name, json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        break
