"""Programs and functions as agents: how they are started, and how they may end."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosted import host, script

from art_cli.config.sections.agent import AgentConfig
from art_cli.errors import BudgetError, Interrupted, PreflightError, UsageError
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.agents.function import Task
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.types import Trajectory

ASK = """
import json, os, urllib.request
def post(path, body):
    request = urllib.request.Request(path, json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))
def ask(messages):
    body = {"model": "m", "messages": messages}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    return answer["choices"][0]["message"]["content"]
task = json.load(open(os.environ["ART_SCENARIO_FILE"]))
said = ask(task["messages"])
"""


@pytest.fixture
def play(make_policy: Any, tmp_path: Path) -> Any:
    """Play an episode with a Python program; the policy says the given texts."""
    policy = make_policy()

    def play(code: str, *texts: Any, pass_env: tuple[str, ...] = (), **more: Any) -> Trajectory:
        file = tmp_path / "agent.py"
        file.write_text(code)
        runner = ProgramRunner([sys.executable, str(file)], list(pass_env))
        return asyncio.run(host(policy, script(policy, *texts), runner, **more))

    return play


def test_a_program_asks_the_policy_and_uses_the_envs_tools(play: Any) -> None:
    code = f"""{ASK}
call = {{"name": "sell", "arguments": {{"item": said}}}}
body = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}}
post(os.environ["ART_MCP_URL"], body)
print("I did it")
"""
    trajectory = play(code, "mug")
    assert trajectory.reward == pytest.approx(1.1) and trajectory.stop_reason == "env"
    assert trajectory.metrics["exit_code"] == 0
    assert trajectory.logs == ["the program printed:\nI did it"]
    assert [s.num_sampled > 0 for s in trajectory.sequences] == [True]


def test_a_program_gets_none_of_our_own_variables_unless_named(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a-secret")
    monkeypatch.setenv("MY_SETTING", "mine")
    code = f"{ASK}\nprint(sorted(os.environ), os.environ.get('MY_SETTING'))"
    [log] = play(code, "a", pass_env=("MY_SETTING",)).logs
    assert "mine" in log and "OPENAI_BASE_URL" in log and "WANDB" not in log


def test_the_scenario_file_holds_the_opening_and_the_tools_and_no_more(play: Any) -> None:
    [log] = play(f"{ASK}\nprint(sorted(task), task['messages'][1], len(task['tools']))", "a").logs
    assert log.endswith("['messages', 'tools'] {'role': 'user', 'content': 'I want a mug.'} 4")


def test_a_crash_is_its_own_bad_play(play: Any) -> None:
    trajectory = play(f"{ASK}\nraise SystemExit('no idea')", "a", crashes=True)
    assert trajectory.stop_reason == "agent" and trajectory.reward == 0.0
    assert trajectory.metrics["exit_code"] == 1 and trajectory.metrics["crashed"] == 1
    assert "no idea" in trajectory.crash


def test_a_crash_leaves_the_group_if_the_config_says_so(play: Any) -> None:
    trajectory = play(f"{ASK}\nraise SystemExit('no idea')", "a", on_crash="drop", crashes=True)
    assert trajectory.reward is None and "exit code 1" in (trajectory.error or "")


def test_what_a_program_writes_down_is_its_answer(play: Any) -> None:
    code = f"{ASK}\nask([{{'role': 'user', 'content': 'a title'}}])\n"
    code += "open(os.environ['ART_ANSWER_FILE'], 'w').write('sold, bye\\n')"
    trajectory = play(code, "mug", "Mugs")
    assert [s.said for s in trajectory.steps] == ["sold, bye"]


def test_an_exit_code_after_the_answer_does_not_void_it(play: Any) -> None:
    code = f"{ASK}\nopen(os.environ['ART_ANSWER_FILE'], 'w').write('bye')\nraise SystemExit(3)"
    trajectory = play(code, "mug")
    assert trajectory.metrics["crashed"] == 0 and trajectory.metrics["exit_code"] == 3
    assert [s.said for s in trajectory.steps] == ["bye"] and trajectory.stop_reason == "env"
    assert "failed after its answer" in trajectory.logs[-1]


def test_an_answer_that_leads_elsewhere_is_not_read(play: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret")
    link = f"os.symlink({str(tmp_path / 'secret')!r}, os.environ['ART_ANSWER_FILE'])"
    assert [s.said for s in play(f"{ASK}\n{link}", "bye").steps] == ["bye"]
    pipe = "os.mkfifo(os.environ['ART_ANSWER_FILE'])"
    assert [s.said for s in play(f"{ASK}\n{pipe}", "bye").steps] == ["bye"]


def test_an_exit_code_after_the_env_is_done_does_not_void_the_episode(play: Any) -> None:
    call = {"name": "close_shop", "arguments": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    code = f"{ASK}\npost(os.environ['ART_MCP_URL'], {body})\nraise SystemExit(3)"
    trajectory = play(code, "mug")
    assert trajectory.metrics["crashed"] == 0 and trajectory.stop_reason == "env"


def test_a_program_that_ends_well_without_asking_is_not_judged(play: Any) -> None:
    trajectory = play("print('hello there')", crashes=True)
    assert trajectory.reward is None and trajectory.metrics["crashed"] == 1
    assert "never asked the policy" in (trajectory.error or "")
    assert "hello there" in (trajectory.error or "")


def test_a_program_that_never_asked_is_not_judged(play: Any) -> None:
    trajectory = play("import nothing_like_it", crashes=True)
    assert trajectory.reward is None and "nothing_like_it" in (trajectory.error or "")


def test_a_program_whose_calls_are_all_refused_is_not_judged(play: Any) -> None:
    code = ASK.replace('"model": "m"', '"n": 0')
    trajectory = play(code, crashes=True)
    assert trajectory.reward is None and "HTTP Error 400" in (trajectory.error or "")


@pytest.mark.slow
def test_a_program_that_hangs_is_killed_with_all_that_it_started(play: Any, tmp_path: Path) -> None:
    code = f"""{ASK}
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(60)
"""
    trajectory = play(code, "a", timeout=12.0, crashes=True)
    assert trajectory.stop_reason == "agent" and "did not end within 12 s" in trajectory.crash
    for pid in (tmp_path / "pids").read_text().split():
        assert is_gone(int(pid))


def is_gone(pid: int) -> bool:
    for _ in range(2000):
        try:
            os.kill(pid, 0)
            if "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:  # nobody waits for orphans
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_much_output_is_cut_and_blocks_nobody(play: Any) -> None:
    [log] = play(f"{ASK}\nprint('x' * 10_000_000)\nprint('the end')", "a").logs
    assert log.endswith("the end") and len(log) < 5000


def function(make_policy: Any, agent: Callable[..., Any], **more: Any) -> Trajectory:
    policy = make_policy()
    return asyncio.run(host(policy, script(policy, "a", "b"), agent, **more))


def test_what_a_function_returns_is_said_to_the_env(make_policy: Any) -> None:
    async def agent(client: Any, task: Task) -> str:
        await client.chat.completions.create(model="m", messages=task.messages)
        return "bye"

    assert function(make_policy, agent).metrics["heard"] == 1


def test_a_function_that_fails_has_its_line_in_the_log(make_policy: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await client.chat.completions.create(model="m", messages=task.messages)
        raise KeyError("oh \ud800" + "x" * 30_000)

    trajectory = function(make_policy, agent, crashes=True)
    assert trajectory.stop_reason == "agent"
    assert f"{Path(__file__).name}:" in trajectory.crash and "KeyError: 'oh" in trajectory.crash
    assert len(trajectory.crash.encode()) < 20_000  # it is storable, and short


@pytest.mark.parametrize("raised", [SystemExit(3), BudgetError("spent"), Interrupted("stopped")])
def test_a_function_that_raises_what_ends_programs_ends_its_episode_alone(
    make_policy: Any, raised: BaseException
) -> None:
    async def agent(client: Any, task: Task) -> None:
        await client.chat.completions.create(model="policy", messages=task.messages)
        raise raised

    trajectory = function(make_policy, agent, crashes=True)
    assert trajectory.stop_reason == "agent" and trajectory.metrics["crashed"] == 1
    assert type(raised).__name__ in trajectory.crash and f"{__file__}:" in trajectory.crash


def test_a_function_that_returns_nonsense_or_hangs_has_crashed(make_policy: Any) -> None:
    async def nonsense(client: Any, task: Task) -> Any:
        await client.chat.completions.create(model="m", messages=task.messages)
        return 7

    async def hanging(client: Any, task: Task) -> None:
        await client.chat.completions.create(model="m", messages=task.messages)
        await asyncio.sleep(60)

    assert "returned 7" in function(make_policy, nonsense, crashes=True).crash
    hung = function(make_policy, hanging, timeout=2, crashes=True)
    assert "within 2 s" in hung.crash


def test_what_cannot_be_started_is_said_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("async def play(client, task): ...\ndef plain(client, task): ...\n")
    with pytest.raises(PreflightError, match="no program 'nodejs-of-mine'"):
        make_runner(AgentConfig(use="program", command=["nodejs-of-mine"]))
    with pytest.raises(PreflightError, match="NOT_THERE is not set"):
        make_runner(AgentConfig(use="program", command=["sh"], pass_env=["NOT_THERE"]))
    with pytest.raises(UsageError, match=r"no 'other'; it has play, plain"):
        make_runner(AgentConfig(use="function", function="mine.py:other"))
    with pytest.raises(UsageError, match="not an async function"):
        make_runner(AgentConfig(use="function", function="mine.py:plain"))
    assert make_runner(AgentConfig(use="function", function="mine.py:play")) is not None
    assert make_runner(AgentConfig()) is None
