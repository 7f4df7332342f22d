"""Agents that run already: episodes are posted to them, and what they end with counts once."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agent_service
import httpx
import pytest
import yaml
from agent_service import REWARD, started
from hosted import ROOM, SCENARIO, ScriptEngine, Shop, script

from art_cli.chat.render import Renderer
from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import PreflightError
from art_cli.rollout.agents import service
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.agents.hosted import HostedAgents
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.end import AgentEnd
from art_cli.rollout.gateway.entrance import Entrance
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.groups import play_groups
from art_cli.types import Trajectory

LATE = 300.0  # seconds: on a busy machine


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play episodes with a service; the policy always says `bye`."""
    policy = make_policy()

    async def go(
        url: str,
        episodes: int,
        *,
        timeout: float = LATE,
        reward: RewardConfig | None = None,
        concurrency: int = 32,
        until: Callable[[], bool] = lambda: True,
        **settings: Any,
    ) -> tuple[list[Trajectory], ScriptEngine]:
        engine = script(policy, *["bye"] * episodes)
        cfg = AgentConfig(use="service", url=url, timeout=timeout, **settings)
        runner, gateway = (
            make_runner(cfg),
            Gateway(
                Served(engine, partial(Renderer, policy.tokenizer), ROOM),
                Entrance.at(cfg.bind, cfg.public_url),
            ),
        )
        assert runner
        await gateway.start()
        agents = HostedAgents(
            gateway=gateway,
            runner=runner,
            timeout=timeout,
            on_crash="score",
            turns=asyncio.Semaphore(concurrency),
            gives_reward=bool(reward),
        )
        groups = [(SCENARIO, [agents.open(n)]) for n in range(episodes)]
        try:
            await runner.open()
            played = play_groups(Shop, None, None, groups, weights=reward)
            trajectories = [g.trajectories[0] async for _, g in played]
            async with asyncio.timeout(LATE):
                while not until():
                    await asyncio.sleep(0.01)
            return trajectories, engine
        finally:
            await runner.close()
            await gateway.close()

    def play(url: str, episodes: int = 1, **more: Any) -> tuple[list[Trajectory], ScriptEngine]:
        return asyncio.run(go(url, episodes, **more))

    return play


@pytest.mark.parametrize("how", ["answers", "posts"])
def test_a_service_plays_and_its_end_is_the_episodes(play: Any, how: str) -> None:
    service = started(how)
    [t], engine = play(service.url)
    assert t.error is None and t.stop_reason == "env"
    assert t.reward == pytest.approx(0.1)  # the env heard its answer, and scored: not its own
    assert t.reward_parts.agent == REWARD and t.metrics["agent_steps"] == 3
    assert t.logs == ["the agent said:\ndone\n{'an': 'event'}"]
    assert [s.num_sampled > 0 for s in t.sequences] == [True] and engine.num_open == 0
    [(_, task)] = service.asked
    assert task["messages"][-1]["content"] == "I want a mug." and len(task["tools"]) == 4
    assert task["deadline"] == LATE and task["mcp_url"].endswith("/mcp")


def test_its_own_reward_counts_where_the_config_says_so(play: Any) -> None:
    service = started("answers")
    [t], _ = play(service.url, reward=RewardConfig(agent=2.0))
    assert t.reward == 2 * REWARD and t.reward_parts.env == pytest.approx(0.1)
    [t], _ = play(service.url, reward=RewardConfig(agent=1.0, env=1.0))
    assert t.reward == pytest.approx(REWARD + 0.1)


def test_an_end_that_is_told_twice_counts_once(play: Any) -> None:
    service = started("twice")
    weights = RewardConfig(agent=1.0)
    [t], _ = play(service.url, reward=weights, until=lambda: len(service.told) == 3)
    assert t.reward == REWARD
    assert [status for status, _ in service.told] == [200, 409, 409]
    codes = [body["error"]["code"] for _, body in service.told[1:]]
    assert codes == ["already_counted", "already_counted"]  # once the episode is over, too


def test_a_wrong_key_is_refused(play: Any) -> None:
    service = started("wrong key")
    [t], engine = play(service.url)
    assert t.reward is None and "401" in (t.error or "") and "api_key" in (t.error or "")
    assert engine.asked == []


def test_a_service_that_never_ends_fails_by_its_deadline(play: Any) -> None:
    silent, mute = started("silent"), started("mute")
    [t], _ = play(silent.url, timeout=2.0)
    assert t.metrics["crashed"] == 1 and t.stop_reason == "agent"
    assert "did not end within 2 s: it took the episode (HTTP 202)" in t.crash
    [t], _ = play(mute.url, timeout=1.0)
    assert t.reward is None and f"1 s: {mute.url} has not answered" in (t.error or "")


def test_a_service_that_lost_an_episode_says_so(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "QUIET", 0.1)
    [t], engine = play(started("loses").url)
    assert t.reward is None and "has lost it" in (t.error or "") and engine.num_open == 0
    [t], _ = play(started("posts", pause=0.5).url)  # it is asked, says nothing of it, and goes on
    assert t.reward == pytest.approx(0.1)


def test_what_a_service_says_of_its_failure_is_kept(play: Any) -> None:
    [t], _ = play(started("fails").url)
    assert t.metrics["crashed"] == 1 and "HTTP 500" in t.crash and "no idea" in t.crash


def test_a_service_that_has_no_room_is_asked_again(play: Any) -> None:
    service = started("busy")
    [t], _ = play(service.url)
    assert t.reward == pytest.approx(0.1) and len(service.asked) == 3


def test_an_answer_that_is_no_end_is_told(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_service, "REWARD", "much")
    [t], _ = play(started("answers").url)
    assert t.metrics["crashed"] == 1 and "reward: " in t.crash


def test_the_services_own_key_is_shown_to_it(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = started("answers")
    with pytest.raises(PreflightError, match="MY_SERVICE_KEY is not set"):
        play(service.url, api_key_env="MY_SERVICE_KEY")
    monkeypatch.setenv("MY_SERVICE_KEY", "k")
    play(service.url, api_key_env="MY_SERVICE_KEY")
    assert [key for key, _ in service.asked] == ["Bearer k"]


def test_a_service_that_is_not_there_is_told_before_anything_else(play: Any) -> None:
    with pytest.raises(PreflightError, match=r"agent\.url: no service answers GET http") as raised:
        play(f"http://127.0.0.1:{free_port()}/episodes")
    assert raised.value.exit_code == 3


def test_an_address_that_cannot_be_listened_on_is_told(play: Any) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(PreflightError, match=r"agent\.bind: cannot listen on 127\.0\.0\.1:"),
    ):
        play(started("answers").url, bind=f"127.0.0.1:{taken.getsockname()[1]}")


def test_the_address_that_is_told_is_the_public_one(play: Any) -> None:
    service = started("mute")
    play(service.url, timeout=1.0, public_url="https://art.example.com/gate/")
    [(_, task)] = service.asked
    assert task["base_url"].startswith("https://art.example.com/gate/e/")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def process(port: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, agent_service.__file__, str(port), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout and started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


def test_a_service_that_dies_and_comes_back_costs_what_it_was_playing(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 episodes, 32 at once: those in flight fail, all others are played, none is lost."""
    port, again = free_port(), ExitStack()

    def watch(self: Any, *args: Any) -> None:
        usual(self, *args)
        if len(self._over) == 20:
            threading.Timer(0.1, die).start()  # the next ones are with it

    def die() -> None:
        first.kill()
        time.sleep(0.5)
        again.enter_context(process(port, "answers"))

    usual = Gateway.leave
    monkeypatch.setattr(Gateway, "leave", watch)
    with again, process(port, "answers", "0.2") as first:
        played, engine = play(f"http://127.0.0.1:{port}/episodes", 64)
    assert len(played) == 64 and engine.num_open == 0
    failed = [t for t in played if t.failed]
    assert 0 < len(failed) <= 32
    assert all("broke off" in (t.error or "") for t in failed), {t.error for t in failed}
    assert [t.reward for t in played if not t.failed] == [pytest.approx(0.1)] * (64 - len(failed))


def test_one_that_does_not_come_back_fails_its_episodes_in_a_bounded_time(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = service.KEEP_TRYING
    monkeypatch.setattr(service, "KEEP_TRYING", 0.5)

    async def there(self: Any) -> None:
        pass

    monkeypatch.setattr(service.ServiceRunner, "open", there)
    began = time.monotonic()
    played, _ = play(f"http://127.0.0.1:{free_port()}/episodes", 4)
    assert time.monotonic() - began < tried / 2
    assert all("did not take the episode within 0.5 s" in (t.error or "") for t in played)


def test_who_is_let_in_by_a_gateway_that_wants_keys(make_policy: Any) -> None:
    """A wrong path, a wrong key, the right one in each API's header, and after the end."""
    policy = make_policy()

    async def go() -> list[int]:
        served = Served(script(policy, "a"), partial(Renderer, policy.tokenizer), ROOM)
        gateway = Gateway(served, Entrance.at("127.0.0.1:0", None))
        await gateway.start()
        episode = Episode(Shop(SCENARIO, None), Trajectory(scenario=SCENARIO))
        hosted = gateway.open(episode, [], 0)
        url, key = gateway.url + hosted.path, hosted.secrets.key
        async with httpx.AsyncClient(trust_env=False) as client:
            shown = [{}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {key}"}]
            shown += [{"x-api-key": key}, {"api-key": key}]
            found = [(await client.get(f"{url}/v1/models", headers=h)).status_code for h in shown]
            there = await client.get(f"{url}x/v1/models", headers=shown[2])
            gateway.leave(hosted)
            over = [await client.post(f"{url}/end", headers=h, content=b"") for h in shown[1:3]]
        await gateway.close()
        return [*found, there.status_code, *(a.status_code for a in over)]

    assert asyncio.run(go()) == [401, 401, 200, 200, 200, 404, 401, 409]


ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "configs" / "agent-service"


@pytest.mark.parametrize("how", ["service", "queue"])
def test_the_example_plays(play: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", "k")
    port = free_port()
    commands = [["service.py", str(port)]]
    if how == "queue":
        commands = [["queue_server.py", str(port)], ["worker.py", f"http://127.0.0.1:{port}/next"]]
    running = [subprocess.Popen([sys.executable, EXAMPLE / c[0], *c[1:]]) for c in commands]
    try:
        limit = time.monotonic() + LATE
        while True:
            assert time.monotonic() < limit
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
        url = f"http://127.0.0.1:{port}/episodes"
        played, _ = play(url, 4, api_key_env="SERVICE_KEY")
        with pytest.raises(PreflightError, match="refuses the key"):
            play(url)
    finally:
        for each in running:
            each.kill()
            each.wait()
    assert [t.reward for t in played] == [pytest.approx(0.1)] * 4, played[0].error


def test_the_image_of_the_example_holds_what_it_imports() -> None:
    lines = dict(x.split(" ", 1) for x in (EXAMPLE / "Dockerfile").read_text().splitlines() if x)
    copied = lines["COPY"].split()[:-1]
    assert json.loads(lines["CMD"])[1] in copied
    for name in copied:
        imports = re.findall(r"^(?:from|import) (\w+)", (EXAMPLE / name).read_text(), re.M)
        assert all(m in sys.stdlib_module_names or f"{m}.py" in copied for m in imports)
    compose = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]["agent"]
    assert compose["ports"] == [f"127.0.0.1:{lines['EXPOSE']}:{lines['EXPOSE']}"]
    assert "host.docker.internal" in compose["extra_hosts"][0]


def test_the_docs_name_what_a_service_gets() -> None:
    page = (ROOT / "docs" / "agent-service.md").read_text()
    hosted: Any = SimpleNamespace(id="", opening=[], tools=[], secrets=SimpleNamespace(key=""))
    for name in service.task_of(hosted, "", 1.0):
        assert f"`{name}`" in page
    for name in AgentEnd.model_fields:
        assert f"| `{name}` |" in page
