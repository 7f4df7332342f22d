"""The env openenv, against a server of its protocol in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from art_cli.errors import UsageError
from art_cli.preflight.envs.play import Played, play_one
from art_cli.preflight.envs.players import Repeater, call_text
from art_cli.types import Scenario
from art_envs.adapters.openenv_env import OpenEnv

SCENARIO = Scenario(id="train-0", split="train", seed=2**40 + 5)
SCHEMA = {
    "title": "Move",
    "description": "Add to the sum.",
    "type": "object",
    "properties": {"by": {"type": "integer"}, "metadata": {"type": "object"}},
}


async def session(request: web.Request) -> web.WebSocketResponse:
    """Count up to nine; fail on what is no number, have no room for the seed 1, nor luck for 2."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    total = 0
    async for message in socket:
        told = json.loads(message.data)
        if told["type"] == "close":
            break
        if told["type"] == "reset":
            total = told["data"]["seed"] + told["data"].get("more", 0)
            answer: dict[str, Any] = {"observation": {"sum": total, "metadata": {}}, "reward": None}
            if total == 1:
                answer = {"code": "CAPACITY_REACHED", "message": "0 of 1 left"}
            if total == 2:
                answer = {"code": "EXECUTION_ERROR", "message": "out of luck"}
        elif not isinstance(by := told["data"].get("by"), int):
            wrong = [{"loc": ["by"], "msg": "Input should be a number"}]
            answer = {"code": "VALIDATION_ERROR", "message": "Invalid message", "errors": wrong}
        elif by == 13:
            answer = {"code": "EXECUTION_ERROR", "message": "13 is no number"}
        else:
            total += by
            answer = {"observation": {"sum": total}, "reward": by / 2, "done": total >= 9}
        kind = "error" if "code" in answer else "observation"
        await socket.send_str(json.dumps({"type": kind, "data": answer}))
    return socket


def play(*turns: str, scenario: Scenario = SCENARIO, **args: Any) -> Played:
    async def schema(request: web.Request) -> web.Response:
        return web.json_response({"action": SCHEMA})

    async def go() -> Played:
        app = web.Application()
        app.add_routes([web.get("/ws", session), web.get("/schema", schema)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        cfg = OpenEnv.Config(url=f"http://127.0.0.1:{port}/", **args)
        try:
            return await play_one(OpenEnv, cfg, scenario, lambda env: Repeater(turns))
        finally:
            await runner.cleanup()

    return asyncio.run(go())


def add(by: Any) -> str:
    return call_text("step", {"by": by})


def test_it_is_stepped_until_it_is_done() -> None:
    p = play(add(1), add(3), task="Reach nine.", reset={"more": 0})
    assert p.opening[0]["content"] == "Reach nine." and p.opening[1]["content"] == '{"sum": 5}'
    assert [s.result for s in p.trajectory.steps] == ['{"sum": 6}', None]
    assert (p.reward, p.trajectory.stop_reason) == (2.0, "env")
    [tool] = p.trajectory.tools
    assert tool["function"]["description"] == "Add to the sum."
    assert list(tool["function"]["parameters"]["properties"]) == ["by"]


def test_what_is_no_action_is_answered_and_costs() -> None:
    p = play(add("x"), "<tool_call>{</tool_call>", add(1), "hm", "hm", invalid_price=0.25)
    steps = p.trajectory.steps
    assert steps[0].result == "error: by: Input should be a number" and steps[0].is_error
    assert play(add(13)).trajectory.steps[0].result == "error: 13 is no number"
    assert (p.reward, p.trajectory.stop_reason) == (0.5 - 4 * 0.25, "env")
    assert p.trajectory.metrics == {"return": 0.5, "invalid_actions": 4.0}


@pytest.mark.parametrize(
    ("scenario", "error", "said"),
    [
        (Scenario(id="train-2", split="train", seed=2), RuntimeError, "out of luck"),
        (Scenario(id="train-1", split="train", seed=1), UsageError, "set env.concurrency"),
    ],
)
def test_a_failure_of_the_server_fails_the_episode(
    scenario: Scenario, error: type[Exception], said: str
) -> None:
    p = play(add(1), scenario=scenario)
    assert isinstance(p.error, error) and said in str(p.error)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "give one of command"),
        ({"url": "http://x", "command": "y"}, "give one of command"),
    ],
)
def test_it_is_said_which_server(args: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OpenEnv.Config(**args)
