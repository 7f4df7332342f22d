"""`agent.workdir`: where programs and functions work, what the env finds there, what is left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hosted import ROOM, SCENARIO, Shop, script

from art_cli.chat.render import Renderer
from art_cli.config.sections.agent import AgentConfig
from art_cli.envs.base import Done, Env
from art_cli.errors import PreflightError
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.agents.hosted import HostedAgents
from art_cli.rollout.agents.workdir import Workdir
from art_cli.rollout.env_class import env_in
from art_cli.rollout.gateway.hosted_episode import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.groups import play_groups
from art_cli.types import Trajectory

ASK = """
import json, os, pathlib, sys, time, urllib.request
task = json.load(open(os.environ["ART_SCENARIO_FILE"]))
body = json.dumps({"model": "m", "messages": task["messages"]}).encode()
def ask():
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    json.load(urllib.request.urlopen(urllib.request.Request(url, body)))
"""
KEPT = """
import json, os, sys, urllib.request
for line in sys.stdin:
    task = json.loads(line)
    body = json.dumps({"model": "m", "messages": task["messages"]}).encode()
    headers = {"Content-Type": "application/json"}
    url = task["base_url"] + "/chat/completions"
    json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))
    os.chdir(task["workdir"])
    print(os.getpid(), sorted(os.listdir()), flush=True)
    HOOK
    open("answer.txt", "w").write("42")
    print(json.dumps({"art": "end", "id": task["id"], "answer": "bye"}), flush=True)
"""
ENV = '''
from art_cli import Done, Env
class Desk(Env):
    """Write 42 into answer.txt."""
    system = "Write."
    async def start(self):
        return "Write 42 into answer.txt."
    def files(self):
        assert self.workdir.is_dir() and not list(self.workdir.iterdir())
        return {"src/given.txt": "given", "blob": b"\\xff\\x00"}
    async def reply(self, text):
        return Done()
    def score(self, trajectory):
        self.metrics["given"] = float((self.workdir / "src" / "given.txt").read_text() == "given")
        return float(self.read_workdir("answer.txt") == b"42")
    def close(self):
        assert self.workdir.is_dir()
'''


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that art is started in, beside the one for temporary files."""
    for name in ("project", "home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "project"


def left(project: Path) -> list[Path]:
    """What is left below the folder for temporary files."""
    return list((project.parent / "tmp").iterdir())


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play episodes with an agent, at the same time; the policy always says `bye`."""
    policy = make_policy()

    async def go(cfg: AgentConfig, env: type[Env], num: int, at_once: int) -> list[Trajectory]:
        runner = make_runner(cfg)
        engine = script(policy, *["bye"] * num)
        gateway = Gateway(Served(engine, partial(Renderer, policy.tokenizer), ROOM))
        assert runner
        await gateway.start()
        agents = HostedAgents(
            gateway=gateway,
            runner=runner,
            timeout=cfg.timeout,
            on_crash=cfg.on_crash,
            turns=asyncio.Semaphore(at_once),
        )
        groups = [(SCENARIO, [agents.open(n)]) for n in range(num)]
        try:
            await runner.open()
            played = play_groups(env, env.Config(), None, groups)
            found = {n: g.trajectories[0] async for n, g in played}
            return [found[n] for n in sorted(found)]
        finally:
            await runner.close()
            await gateway.close()

    def play(
        cfg: AgentConfig, env: type[Env] = Shop, num: int = 1, at_once: int = 4
    ) -> list[Trajectory]:
        return asyncio.run(go(cfg, env, num, at_once))

    return play


@pytest.fixture
def program(project: Path) -> Any:
    """The config of a Python program of the project."""

    def program(code: str, **more: Any) -> AgentConfig:
        (project / "agent.py").write_text(code)
        return AgentConfig(use="program", command=[sys.executable, "agent.py"], **more)

    return program


def desk(project: Path, python: str | None = None) -> type[Env]:
    (project / "desk.py").write_text(ENV)
    return env_in(f"{project}/desk.py:Desk", python)


def test_episodes_at_the_same_time_have_a_folder_and_a_home_each(
    play: Any, program: Any, project: Path
) -> None:
    both = project.parent / "both"
    both.mkdir()
    code = f"""{ASK}
ask()
here, home = pathlib.Path.cwd(), pathlib.Path.home()
(here / "mine").write_text(str(os.getpid()))
(home / ".settings").write_text(str(os.getpid()))
(pathlib.Path({str(both)!r}) / str(os.getpid())).touch()
while len(os.listdir({str(both)!r})) < 2:
    time.sleep(0.02)
assert (here / "mine").read_text() == (home / ".settings").read_text() == str(os.getpid())
print(json.dumps([str(here), str(home), os.environ["TMPDIR"]]))
"""
    played = play(program(code), num=2)
    said = [json.loads(t.logs[0].partition("\n")[2]) for t in played]
    assert len({*said[0], *said[1]}) == 6
    assert str(project) not in said[0] and str(Path.home()) not in said[0]
    assert [p.name for p in project.iterdir()] == ["agent.py"] and not left(project)
    assert not list(Path.home().iterdir())


@pytest.mark.parametrize("python", [None, sys.executable])
def test_an_env_fills_the_folder_and_reads_it_for_its_score(
    play: Any, program: Any, project: Path, python: str | None
) -> None:
    code = f"{ASK}\nask()\nassert open('blob', 'rb').read() == bytes([255, 0])\n"
    code += "assert pathlib.Path('src/given.txt').read_text() == 'given'\n"
    code += "pathlib.Path('answer.txt').write_text('42')"
    played = play(program(code), desk(project, python), num=2)
    assert [t.reward for t in played] == [1.0] * 2, [(t.error, t.logs) for t in played]
    assert played[0].metrics["given"] == 1 and not left(project)


def test_a_kept_program_is_told_the_folder_of_each_episode(
    play: Any, program: Any, project: Path
) -> None:
    env = desk(project)
    played = play(program(KEPT.replace("HOOK", "pass"), keep=True), env, num=3, at_once=1)
    assert [t.reward for t in played] == [1.0] * 3, [(t.error, t.logs) for t in played]
    said = {t.logs[0].partition("\n")[2] for t in played}
    assert len(said) == 1 and said.pop().endswith(" ['blob', 'src']") and not left(project)


def test_the_folder_outlives_a_kept_program_that_dies(
    play: Any, program: Any, project: Path
) -> None:
    hook = "open('answer.txt', 'w').write('42'); os._exit(3)"
    cfg = program(KEPT.replace("HOOK", hook), keep=True)
    [t] = play(cfg, desk(project))
    assert t.metrics["given"] == 1 and t.metrics["crashed"] == 1 and not left(project)


def test_a_function_of_another_interpreter_is_called_in_the_folder(
    play: Any, project: Path
) -> None:
    (project / "beside.py").write_text("NAME = 'from the project'")
    (project / "mine.py").write_text("""
import os, urllib.request, json, asyncio
async def play(client, task):
    body = json.dumps({"model": "m", "messages": task.messages}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(task.base_url + "/chat/completions", body, headers)
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
    open("beside.py", "w").write("raise SystemExit('of the policy')")
    import beside
    print(beside.NAME, os.getcwd() == task.workdir)
    open("answer.txt", "w").write("42")
    return "bye"
""")
    env = desk(project)
    cfg = AgentConfig(use="function", function="mine:play", python=sys.executable)
    played = play(cfg, env, num=2, at_once=1)
    assert [t.reward for t in played] == [1.0] * 2, [(t.error, t.logs) for t in played]
    assert "from the project True" in played[0].logs[0] and not left(project)


def test_a_function_of_this_process_is_told_its_folder(
    play: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "own.py").write_text("""
import os
async def play(client, task):
    await client.chat.completions.create(model="m", messages=task.messages)
    (task.workdir / "answer.txt").write_text("42")
    return "bye"
""")
    env = desk(project)
    cfg = AgentConfig(use="function", function=f"{project}/own.py:play")
    [t] = play(cfg, env)
    assert t.reward == 1.0 and not left(project)
    [t] = play(AgentConfig(use="function", function=f"{project}/own.py:play", workdir="inherit"))
    assert (project / "answer.txt").read_text() == "42"


WHERE = f"{ASK}\nask()\nprint(os.getcwd(), os.environ['HOME'])"


def test_inherit_and_a_path_mean_what_they_say(play: Any, program: Any, project: Path) -> None:
    (project / "there").mkdir()
    [t] = play(program(WHERE, workdir="inherit"))
    assert t.logs[0].endswith(f"\n{project} {Path.home()}")
    [t] = play(program(WHERE, workdir="there"))
    assert t.logs[0].endswith(f"\n{project / 'there'} {Path.home()}") and not left(project)
    with pytest.raises(PreflightError, match=r"no folder 'frehs'.*expected fresh, inherit, or"):
        make_runner(program(WHERE, workdir="frehs"))


def test_words_that_name_what_is_in_the_project_are_made_absolute(project: Path) -> None:
    (project / "agent").mkdir()
    for name in ("agent/main.py", "settings.yaml", "node"):
        (project / name).touch()
    words = ["node", "agent/main.py", "--config=settings.yaml", "agent", "none.py", ".", "-x=y"]
    p = str(project)
    assert Workdir("fresh").command(words) == [
        *("node", f"{p}/agent/main.py", f"--config={p}/settings.yaml", f"{p}/agent", "none.py"),
        *(".", "-x=y"),
    ]
    assert Workdir("fresh").command(["./node", "x" * 5000])[0] == f"{p}/node"
    assert Workdir("inherit").command(words) == words


def test_modules_of_the_project_are_found_by_python_m(play: Any, project: Path) -> None:
    (project / "package").mkdir()
    (project / "package" / "own.py").write_text(WHERE)
    command = [sys.executable, "-X", "dev", "-m", "package.own"]
    [t] = play(AgentConfig(use="program", command=command))
    assert t.metrics["exit_code"] == 0 and not t.metrics["crashed"]


@pytest.mark.parametrize(
    "code", ["open('data.json')", "import beside.it", "print('Error: ENOENT'); raise SystemExit(3)"]
)
def test_one_that_does_not_find_something_is_told_of_the_setting(
    play: Any, program: Any, project: Path, code: str
) -> None:
    [t] = play(program(f"{ASK}\nask()\n{code}"))
    assert f"set agent.workdir: inherit, which starts it in {project}." in t.crash
    [t] = play(program(f"{ASK}\nask()\n{code}", workdir="inherit"))
    assert "agent.workdir" not in t.crash
    [t] = play(program(f"{ASK}\nask()\nraise SystemExit('too hard')"))
    assert "agent.workdir" not in t.crash


NASTY = f"""{ASK}
ask()
secret = SECRET
os.symlink(secret, "answer.txt")
os.symlink(os.path.dirname(secret), "folder")
os.mkfifo("pipe")
os.link("pipe", "again")
open(b"\\xff\\xfe name", "w").close()
os.makedirs("shut/below/it"); open("shut/below/file", "w").close()
os.chmod("shut/below", 0o500); os.chmod("shut", 0)
deep = os.getcwd()
for _ in range(1500):
    os.mkdir("d"); os.chdir("d")
os.chdir(deep); os.chmod(deep, 0o500)
raise SystemExit(CODE)
"""


class Curious(Env):
    """Reads what an agent may have left."""

    seen: dict[str, Any]

    async def start(self) -> str:
        return "Go."

    async def reply(self, text: str) -> Done:
        return Done()

    def score(self, trajectory: Trajectory) -> float:
        names = (
            "answer.txt",
            "folder/secret",
            "pipe",
            "again",
            "../x",
            "/etc/hosts",
            "",
            "a\0",
            ".",
        )
        type(self).seen = {name: self.read_workdir(name) for name in names}
        return 1.0


@pytest.mark.parametrize("code", [0, 3])
def test_what_an_agent_left_is_removed_and_leads_nowhere(
    play: Any, program: Any, project: Path, code: int
) -> None:
    secret = project.parent / "secret"
    secret.write_text("hush")
    [t] = play(
        program(NASTY.replace("SECRET", repr(str(secret))).replace("CODE", str(code))), Curious
    )
    assert t.metrics["exit_code"] == code, t.logs
    assert set(Curious.seen.values()) == {None}
    assert secret.read_text() == "hush" and not left(project), t.logs


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"/etc/x": ""}, "absolute"),
        ({"a/../../x": ""}, r"`\.\.`"),
        ({"a//b": ""}, "empty part"),
        ({"": ""}, "no path"),
        ({3: ""}, "no path"),
        ({"a\0": ""}, "empty part"),
        ({"\ud800": ""}, "UTF-8"),
        ({"a": "\ud800"}, "UTF-8"),
        ({"a": 3}, "text or bytes"),
        ({"a": "", "a/b": ""}, "another file below"),
        ({"x" * 300: ""}, "too long"),
        ({"a": b"\0" * (2**26 + 1)}, "at most"),
        ("text", "expected a dict"),
        (None, "expected a dict"),
    ],
)
def test_mistakes_of_files_are_the_envs_with_their_place(
    play: Any, program: Any, project: Path, given: Any, said: str
) -> None:
    class Wrong(Curious):
        def files(self) -> Any:
            return given

    [t] = play(program(WHERE), Wrong)
    assert t.reward is None and t.metrics["crashed"] == 0 and not left(project)
    assert f"{__file__}:" in t.error and "files()" in t.error
    assert re.search(said, t.error), t.error


def test_a_program_that_hangs_leaves_no_folder(play: Any, program: Any, project: Path) -> None:
    [t] = play(program(f"{ASK}\nask()\nopen('x', 'w').close()\ntime.sleep(600)", timeout=5.0))
    assert "did not end within 5 s" in t.crash and not left(project)


STARTER = """
import asyncio, pathlib, sys
from art_cli.cli.run import _stop_on_interrupt
from types import SimpleNamespace
from art_cli.config.sections.agent import AgentConfig
from art_cli.envs.base import Env
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.episode import Episode
from art_cli.types import Scenario, Trajectory

said = lambda word: print(word, flush=True)
_stop_on_interrupt(SimpleNamespace(requested=False), SimpleNamespace(say=said, finish=said))
scenario = Scenario(id="a", split="train", seed=1)
class Slow(Env):
    async def score(self, trajectory):
        assert (self.workdir / "mine").is_file()
        print("scoring", flush=True)
        await asyncio.sleep(600)
async def main():
    episode = Episode(Slow(scenario, None), Trajectory(scenario=scenario))
    hosted = SimpleNamespace(opening=[], tools=[], work_in=episode.work_in)
    runner = make_runner(AgentConfig(use="program", command=["sh", "-c", "echo > mine"]))
    await runner.run(hosted, "http://127.0.0.1:9", episode.trajectory)
    await episode.finish()
asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["kill -9", "the second Ctrl-C"])
def test_a_run_that_ends_while_the_env_scores_leaves_no_folder(project: Path, how: str) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(project.parent / "tmp")},
    )
    assert run.stdout and run.stdout.readline() == b"scoring\n" and left(project)
    if how == "kill -9":
        run.kill()
    else:
        run.send_signal(signal.SIGINT)
        assert b"stopping after this step" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
    run.communicate(timeout=120)
    until(lambda: not left(project))


def until(is_so: Callable[[], object]) -> None:
    limit = time.monotonic() + 110
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.02)
