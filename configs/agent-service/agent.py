"""An agent that asks a chat model and calls the env's tools over MCP, with the standard library.

`play(task)` gets what art posts, and returns the end. Any OpenAI client does in place of `ask`:
OpenAI(base_url=task["base_url"], api_key=task["api_key"]).
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

MOST_TURNS = 16


def post(url: str, key: str, body: Any) -> Any:
    """Return the JSON that a POST is answered with."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def ask(task: dict[str, Any], messages: list[Any]) -> dict[str, Any]:
    """Return the model's message."""
    body = {"model": task["model"], "messages": messages, "tools": task["tools"]}
    answer = post(f"{task['base_url']}/chat/completions", task["api_key"], body)
    return answer["choices"][0]["message"]


def call(task: dict[str, Any], name: str, arguments: dict[str, Any]) -> str:
    """Return what a tool of the env gives."""
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    result = post(task["mcp_url"], task["api_key"], body)["result"]
    return result["content"][0]["text"]


def play(task: dict[str, Any]) -> dict[str, Any]:
    """Play an episode; return its end."""
    messages, num_calls = list(task["messages"]), 0
    for _ in range(MOST_TURNS):
        message = ask(task, messages)
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            return {"answer": message["content"], "metrics": {"calls": num_calls}}
        for each in calls:
            function = each["function"]
            content = call(task, function["name"], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": each["id"], "content": content})
            num_calls += 1
    return {"logs": [f"gave up after {MOST_TURNS} turns"]}
