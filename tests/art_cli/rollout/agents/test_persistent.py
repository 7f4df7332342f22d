"""Programs that play many episodes, and functions in an environment of their own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hosted import ROOM, SCENARIO, ScriptEngine, Shop, script

from art_cli.chat.render import Renderer
from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import PreflightError
from art_cli.rollout.agents import program
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.agents.hosted import HostedAgents
from art_cli.rollout.gateway.hosted_episode import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.groups import play_groups
from art_cli.types import Trajectory

ROOT = Path(__file__).parents[4]
PLAYER = """
import json, os, sys, time, urllib.request
num = 0
print("I started", file=sys.stderr)
for line in sys.stdin:
    task, num = json.loads(line), num + 1
    body = json.dumps({"model": "m", "messages": task["messages"]}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(task["base_url"] + "/chat/completions", body, headers)
    said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    print("episode", num, os.getpid(), sorted(os.environ) if num == 1 else "", flush=True)
    HOOK
    end = {"art": "end", "id": task["id"], "answer": said, "reward": 0.5, "metrics": {"num": num}}
    print(json.dumps(end), flush=True)
"""


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play episodes with an agent; the policy always says `bye`."""
    policy = make_policy()

    async def go(
        cfg: AgentConfig, episodes: int, at_once: int, reward: RewardConfig | None
    ) -> tuple[list[Trajectory], ScriptEngine]:
        engine = script(policy, *["bye"] * episodes)
        runner = make_runner(cfg)
        gateway = Gateway(Served(engine, partial(Renderer, policy.tokenizer), ROOM))
        assert runner
        await gateway.start()
        agents = HostedAgents(
            gateway=gateway,
            runner=runner,
            timeout=cfg.timeout,
            on_crash=cfg.on_crash,
            turns=asyncio.Semaphore(at_once),
            gives_reward=bool(reward),
        )
        groups = [(SCENARIO, [agents.open(n)]) for n in range(episodes)]
        try:
            await runner.open()
            played = play_groups(Shop, None, None, groups, weights=reward)
            found = {n: g.trajectories[0] async for n, g in played}
            return [found[n] for n in sorted(found)], engine
        finally:
            await runner.close()
            await gateway.close()

    def play(
        cfg: AgentConfig, episodes: int = 1, at_once: int = 1, reward: RewardConfig | None = None
    ) -> list[Trajectory]:
        return asyncio.run(go(cfg, episodes, at_once, reward))[0]

    return play


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The config of a program that is kept; `hook` is run in each episode."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    def kept(hook: str = "", **more: Any) -> AgentConfig:
        (tmp_path / "player.py").write_text(PLAYER.replace("HOOK", hook or "pass"))
        command = [sys.executable, str(tmp_path / "player.py")]
        return AgentConfig(use="program", keep=True, command=command, **more)

    yield kept
    assert list((tmp_path / "tmp").iterdir()) == []


def test_one_process_plays_one_episode_after_the_other(play: Any, kept: Any) -> None:
    played = play(kept(), 4, reward=RewardConfig(agent=1.0))
    assert [t.reward for t in played] == [0.5] * 4
    assert [t.metrics["agent_num"] for t in played] == [1, 2, 3, 4]
    logs = [t.logs[0].splitlines() for t in played]
    pids = {lines[-1].split()[2] for lines in logs}
    assert len(pids) == 1 and not is_alive(int(pids.pop()))
    assert "I started" in logs[0] and "I started" not in logs[1] and len(logs[1]) == 2
    assert "OPENAI_API_KEY" not in played[0].logs[0]


def test_as_many_processes_as_episodes_are_played_at_once(play: Any, kept: Any) -> None:
    played = play(kept("time.sleep(0.2)"), 6, at_once=3)
    pids = [t.logs[0].splitlines()[-1].split()[2] for t in played]
    assert len(set(pids)) == 3
    assert all(t.reward == pytest.approx(0.1) for t in played)


def test_a_process_that_dies_costs_its_episode_alone(play: Any, kept: Any) -> None:
    played = play(kept("if num == 2: print('no idea', flush=True); os._exit(7)"), 4)
    assert [bool(t.metrics.get("crashed")) for t in played] == [False, True, False, True]
    assert played[1].metrics["exit_code"] == 7
    assert "ended with exit code 7" in played[1].crash and "no idea" in played[1].crash


def test_an_error_that_it_tells_is_the_episodes_and_it_is_kept(play: Any, kept: Any) -> None:
    hook = """if num == 1:
        print(json.dumps({"art": "end", "id": task["id"], "error": "lost"}), flush=True)
        continue"""
    first, second = play(kept(hook), 2)
    assert first.metrics["crashed"] == 1 and "lost" in first.crash
    assert second.metrics["agent_num"] == 2


def test_one_that_hangs_is_killed_and_another_takes_its_place(play: Any, kept: Any) -> None:
    first, second = play(
        kept(
            "if num == 1 and not os.path.exists('hung'): "
            "open('hung', 'w').close(); time.sleep(600)",
            timeout=3.0,
            workdir="inherit",
        ),
        2,
    )
    assert "did not end within 3 s" in first.crash and second.metrics["agent_num"] == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"art": "end", "id": "x"}', "ended the episode 'x'"),
        ('{"art": "end", "id": task["id"], "rewrad": 1}', "rewrad: Extra inputs"),
    ],
)
def test_a_line_that_is_no_end_is_told(play: Any, kept: Any, line: str, said: str) -> None:
    [t] = play(kept(f"print(json.dumps({line}), flush=True)"))
    assert t.metrics["crashed"] == 1 and said in t.crash


def test_what_it_prints_without_end_stops_it(
    play: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "MAX_PRINTED", 2**16)
    [t] = play(kept("while True: print('x' * 4000, file=sys.stderr)"))
    assert "was killed: it printed more than" in t.crash


STARTER = """
import asyncio, json, sys
from types import SimpleNamespace
from art_cli.rollout.agents.persistent import PersistentRunner
from art_cli.types import Scenario, Trajectory
runner = PersistentRunner(json.loads(sys.argv[1]), [], None, 60.0)
trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))
async def work_in(*_): pass
hosted = SimpleNamespace(
    id="a", opening=[], tools=[], secrets=SimpleNamespace(key="k"), work_in=work_in
)
asyncio.run(runner.run(hosted, "http://127.0.0.1:9", trajectory))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no subreaper")
def test_a_run_that_is_killed_leaves_nothing_of_it(tmp_path: Path) -> None:
    code = f"read line; cd {tmp_path}; setsid sh -c 'echo $$ > pid; exec sleep 1000'"
    (tmp_path / "tmp").mkdir()
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, json.dumps(["sh", "-c", code])],
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    assert is_alive(pid)
    starter.kill()
    starter.wait()
    until(lambda: not is_alive(pid) and not list((tmp_path / "tmp").iterdir()))


def until(is_so: Callable[[], object]) -> None:
    limit = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


FUNCTION = """
import only_there
async def play(client, task):
    print(client, only_there.NAME)
    messages = list(task.messages)
    said = await only_there.ask(task.base_url, task.api_key, messages)
    sold = await task.call_tool("sell", {"item": "mug"})
    assert not task.is_over
    ended = await task.call_tool("close_shop", {})
    return {"answer": said, "reward": 0.25, "logs": [sold, ended, task.is_over]}
"""
ONLY_THERE = """
import asyncio, json, urllib.request
NAME = "a package of its own"
async def ask(url, key, messages):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + "/chat/completions", body, headers)
    answer = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(request)))
    return answer["choices"][0]["message"]["content"]
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An environment with a package that art's has not, and without openai."""
    venv.create(tmp_path / "own", with_pip=False, symlinks=True)
    [packages] = (tmp_path / "own" / "lib").glob("python*/site-packages")
    (packages / "only_there.py").write_text(ONLY_THERE)
    return str(tmp_path / "own" / "bin" / "python")


def test_a_function_runs_in_an_environment_of_its_own(
    play: Any, python: str, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(FUNCTION)
    cfg = AgentConfig(use="function", function=f"{tmp_path}/agent.py:play", python=python)
    played = play(cfg, 2, reward=RewardConfig(agent=1.0))
    assert [(t.reward, t.reward_parts.env) for t in played] == [(0.25, 1.0)] * 2
    assert "None a package of its own" in played[0].logs[0]
    assert "the agent said:\nsold\nThe episode is over.\nTrue" in played[0].logs[1]


def test_what_it_raises_has_its_line(play: Any, python: str, tmp_path: Path) -> None:
    code = FUNCTION.replace("    assert", "    raise KeyError('oh')\n    assert")
    (tmp_path / "agent.py").write_text(code)
    cfg = AgentConfig(use="function", function=f"{tmp_path}/agent.py:play", python=python)
    [t] = play(cfg)
    assert "agent.py:8: KeyError: 'oh'" in t.crash and t.metrics["crashed"] == 1


def test_what_cannot_be_imported_is_told_before_anything_else(
    play: Any, python: str, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text("import nothing_like_it")
    cfg = AgentConfig(use="function", function=f"{tmp_path}/agent.py:play", python=python)
    with pytest.raises(PreflightError, match=r"(?s)cannot run .*agent.py:play.*nothing_like_it"):
        play(cfg)


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_the_recipes_of_the_docs_play(play: Any, language: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "agent-service.md").read_text()
    code = page.split(f"```{language}\n")[1].split("```")[0]
    name = {"python": sys.executable, "javascript": shutil.which("node")}[language]
    if name is None:
        pytest.skip("there is no node here")
    file = tmp_path / ("agent.mjs" if language == "javascript" else "kept.py")
    file.write_text(code)
    if language == "python":
        shutil.copy(ROOT / "configs" / "agent-service" / "agent.py", tmp_path)
    cfg = AgentConfig(use="program", keep=True, command=[name, str(file)])
    played = play(cfg, 3)
    assert [t.reward for t in played] == [pytest.approx(0.1)] * 3, played[0].logs


def test_it_is_asked_to_end_by_its_stdin(play: Any, kept: Any, tmp_path: Path) -> None:
    cfg = kept(
        "import atexit; atexit.register(lambda: open('ended', 'w').close())", workdir="inherit"
    )
    play(cfg)
    assert (tmp_path / "ended").exists()
