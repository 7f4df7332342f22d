"""Ways in which agents ask, whatever their framework: styles.py STYLE.

Each plays the same game with OpenAI's package; what differs is what else is asked, and what becomes
of the history.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator

from openai import BadRequestError, OpenAI

STYLE = sys.argv[1]
ASIDE = {
    "guardrail": "Is the answer polite? Say yes or no.",
    "title": "Give a title to this conversation.",
    "planner": "Make a plan for the next turn.",
    "compaction": "Summarize the conversation.",
}
with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)
client = OpenAI(max_retries=0)


def call_tool(name: str, arguments: dict) -> str:
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = urllib.request.Request(os.environ["ART_MCP_URL"], json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]


def ask(messages: list, tools: list) -> dict:
    """Return the next turn as a message."""
    asked = {"model": "gpt-5-mini", "messages": messages, "tools": tools}
    if STYLE == "stream":
        with client.chat.completions.stream(**asked) as stream:
            message = stream.get_final_completion().choices[0].message
    elif STYLE == "logprobs":
        answer = client.chat.completions.create(**asked, logprobs=True)
        assert answer.choices[0].logprobs.content, "no log-probabilities"
        message = answer.choices[0].message
    else:
        message = client.chat.completions.create(**asked).choices[0].message
    return message.model_dump(exclude_none=True, exclude={"parsed"})


def aside(what: str, about: list) -> str:
    """Ask something beside the game."""
    messages = [{"role": "system", "content": ASIDE[what]}]
    messages.append({"role": "user", "content": json.dumps(about)})
    answer = client.chat.completions.create(model="gpt-5-nano", messages=messages)
    return answer.choices[0].message.content


def shaped(messages: list) -> list:
    """Return the history as this style sends it."""
    out = [dict(m) for m in messages]
    if STYLE == "wordless":  # the words beside a call are lost
        for m in out:
            if m.get("tool_calls"):
                m["content"] = None
    elif STYLE == "forgetful":  # of earlier results only the last is kept
        for m in [m for m in out if m["role"] == "tool"][:-1]:
            m["content"] = "(left out)"
    elif STYLE == "windowed" and len(out) > 4:  # what is older than the last exchange is lost
        begin = max(i for i, m in enumerate(out) if m["role"] == "assistant")
        out = [*out[:2], *out[begin:]]
    elif STYLE == "spaced":
        for m in out:
            if m["role"] == "assistant" and m.get("content"):
                m["content"] = f"  {m['content']}\n"
    elif STYLE == "planner":
        plan = aside("planner", out)
        out.append({"role": "user", "content": f"The plan: {plan}"})
    return out


def turns(messages: list, tools: list) -> Iterator[dict]:
    """Play until there are words without a call."""
    opening = list(messages)
    for _ in range(20):
        try:
            message = ask(shaped(messages), tools)
        except BadRequestError as e:
            if STYLE != "compaction" or e.code != "context_length_exceeded":
                raise
            print("compacted")
            summary = aside("compaction", [m.get("content") for m in messages[-1:]])
            messages[:] = [*opening, {"role": "user", "content": summary}]
            continue
        messages.append(message)
        yield message
        for call in message.get("tool_calls", []):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            result = specialist() if name == "ask_specialist" else call_tool(name, arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if not message.get("tool_calls"):
            return


def specialist() -> str:
    """A sub-agent plays; what it says is passed on."""
    return list(turns(task["messages"], task["tools"]))[-1]["content"]


def tool(name: str, argument: str) -> dict:
    properties = {argument: {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": [argument]}
    function = {"name": name, "description": f"To {name}.", "parameters": schema}
    return {"type": "function", "function": function}


messages, tools = [dict(m) for m in task["messages"]], list(task["tools"])
if STYLE == "subagent":
    messages = [{"role": "system", "content": "You pass requests on."}, messages[1]]
    tools = [tool("ask_specialist", "request")]
if STYLE == "final_tool":
    tools.append(tool("final_answer", "answer"))
for message in turns(messages, tools):
    if STYLE == "final_tool" and message["tool_calls"][0]["function"]["name"] == "final_answer":
        break
if STYLE in ("guardrail", "title"):
    print(aside(STYLE, messages))
if STYLE == "answer_file":
    print(aside("title", messages))
    with open(os.environ["ART_ANSWER_FILE"], "w") as file:
        file.write(messages[-1]["content"])
