"""A program that asks the policy three times, and does what its scenario names. No packages."""

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

BASE = urlsplit(os.environ["OPENAI_BASE_URL"])
MCP = urlsplit(os.environ["ART_MCP_URL"])
TIMEOUT = 120  # seconds
RUNNING = "running"  # a file in the episode's folder, while the program runs
JSON = {"Content-Type": "application/json"}


def post(path: str, body: bytes | str, headers: dict[str, str] = JSON) -> tuple[int, str]:
    """The status and text of the answer."""
    connection = http.client.HTTPConnection(BASE.hostname or "", BASE.port, timeout=TIMEOUT)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    status, text = answer.status, answer.read().decode()
    connection.close()
    return status, text


def chat(body: bytes | str, headers: dict[str, str] = JSON) -> tuple[int, str]:
    """Ask the policy."""
    return post(f"{BASE.path}/chat/completions", body, headers)


def reply(text: str) -> str:
    """Say something to the env."""
    call = {"name": "reply", "arguments": {"text": text}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    _, answer = post(MCP.path, json.dumps(message))
    return json.loads(answer)["result"]["content"][0]["text"]


def ask(messages: list[dict[str, object]], **more: object) -> str:
    """An ordinary request."""
    return json.dumps({"model": "policy", "messages": messages, **more})


def misbehave(kind: str, messages: list[dict[str, object]]) -> None:
    """Do what the scenario names; most of it must be refused, and nothing come of it."""
    plain = ask(messages)
    tool = {"type": "function", "function": {"name": "x", "description": "\ud800"}}
    bodies: dict[str, bytes | str] = {
        "lone surrogate": ask(messages, stop=["\ud800"]),
        "surrogate in a tool": ask(messages, tools=[tool]),
        "deep": plain[:-1] + ', "x": ' + "[" * 900 + "]" * 900 + "}",
        "digits": plain[:-1] + ', "seed": ' + "9" * 5000 + "}",
        "twice": plain[:-1] + ', "model": "a", "model": "b"}',
        "not json": b"\xff\x00{",
        "nan": plain[:-1] + ', "temperature": NaN}',
        "8 MB": ask([*messages, {"role": "user", "content": "red " * 2**21}]),
    }
    if kind in bodies:
        chat(bodies[kind])
    elif kind == "bomb":
        chat(gzip.compress(b" " * 2**28), {**JSON, "Content-Encoding": "gzip"})
    elif kind in ("hangs up", "half a request"):
        connection = http.client.HTTPConnection(BASE.hostname or "", BASE.port, timeout=TIMEOUT)
        connection.putrequest("POST", f"{BASE.path}/chat/completions")
        connection.putheader("Content-Length", str(len(plain)))
        connection.endheaders(plain[: len(plain) // (1 if kind == "hangs up" else 2)].encode())
        time.sleep(0 if kind == "hangs up" else 2)
        connection.close()
    elif kind == "bad tool call":
        for arguments in ('{"where": "\\ud800"}', '{"where": ' + "[" * 900 + "]" * 900 + "}"):
            head = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": '
            post(MCP.path, f'{head}{{"name": "look", "arguments": {arguments}}}}}')
    elif kind == "wrong secret":
        post(f"{BASE.path.rpartition('/v1')[0]}x/v1/chat/completions", plain)
    elif kind == "ends with 3":
        sys.exit(3)
    elif kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "prints without end":
        while True:
            print("\x1b[31mred" * 10_000)
    elif kind == "leaves a child":
        subprocess.Popen(["sleep", "100000"], start_new_session=True)


def main() -> None:
    """Play the episode that the environment names."""
    with open(os.environ["ART_SCENARIO_FILE"], encoding="utf-8") as file:
        messages = json.load(file)["messages"]
    running = os.path.join(os.path.dirname(file.name), RUNNING)
    open(running, "w").close()
    play(messages)
    os.remove(running)


def play(messages: list[Any]) -> None:
    """Three turns."""
    kind = messages[-1]["content"].partition("]")[0].removeprefix("[")
    for turn in range(3):
        status, text = chat(ask(messages))
        if status != 200:  # the episode is over, or there is no room left
            return
        said = json.loads(text)["choices"][0]["message"]["content"] or ""
        if turn == 0:
            misbehave(kind, messages)
        answer = reply(said)
        messages = [*messages, {"role": "assistant", "content": said}]
        messages += [{"role": "user", "content": answer}]


main()
