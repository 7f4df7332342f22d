"""`agent.sandbox`: what a program can see and touch, and when it is refused."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hosted import Alone, host, script

from art_cli.config.load import load_experiment
from art_cli.config.sections.agent import AgentConfig
from art_cli.errors import ConfigError, PreflightError
from art_cli.rollout.agents.build import make_runner
from art_cli.types import Scenario, Trajectory

WALL = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"]
works = pytest.mark.skipif(
    shutil.which("bwrap") is None or subprocess.run(WALL, capture_output=True).returncode != 0,
    reason="bwrap is not installed, or may not make namespaces here",
)
# A docker that notes how it was called, and runs nothing.
DOCKER = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["DOCKER_NOTES"], "a") as notes:
    notes.write(json.dumps([sys.argv[1:], sorted(os.environ)]) + "\\n")
if sys.argv[-1] == "missing":
    sys.exit("Error: No such image: missing")
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that art is started in, beside a home that holds a secret."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").write_text("hush")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_KEY", "hush")
    return tmp_path / "project"


def printed(code: str, **settings: Any) -> str:
    """What a shell's script prints in a sandbox."""
    settings = {"sandbox": "bwrap"} | settings
    runner = make_runner(AgentConfig(use="program", command=["sh", "-c", code], **settings))
    assert runner
    trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))

    async def go() -> None:
        hosted: Any = Alone()
        await runner.run(hosted, "http://127.0.0.1:9", trajectory)
        await hosted.close()

    asyncio.run(go())
    return "\n".join(trajectory.logs).removeprefix("the program printed:\n")


@works
def test_a_program_sees_the_project_and_its_own_processes_and_no_more(project: Path) -> None:
    (project / "mine").write_text("read me")
    (project / ".env").write_text("MY_KEY=hush")
    outside = project.parent / "home" / "secret"
    code = f"cd {project}; cat mine .env; echo; cat {outside}; env; cat /proc/[0-9]*/environ"
    said = printed(f"{code}; echo; echo $(ls -d /proc/[0-9]* | wc -l) processes")
    assert said.startswith("read me\n") or "\nread me\n" in said
    assert "hush" not in said
    assert "No such file or directory" in said
    num = int(said.split(" processes")[0].split()[-1])
    assert num < 10 < len([name for name in os.listdir("/proc") if name.isdigit()])


@works
def test_a_program_writes_into_its_own_folder_only(project: Path) -> None:
    code = (
        f"for f in {project}/mine /usr/mine {Path.home()}/mine; do echo > $f || echo refused; done"
    )
    said = printed(
        f"{code} 2>&-; echo one > $HOME/one; echo two > /tmp/two; cat $HOME/one /tmp/two"
    )
    assert said.splitlines() == ["refused"] * 3 + ["one", "two"]
    assert not (project / "mine").exists()


@works
def test_a_program_in_a_sandbox_reaches_the_gateway_and_has_what_is_passed(
    make_policy: Any, project: Path
) -> None:
    (project / "agent.py").write_text("""
import json, os, urllib.request
task = json.load(open(os.environ["ART_SCENARIO_FILE"]))
body = json.dumps({"model": "m", "messages": task["messages"]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
json.load(urllib.request.urlopen(urllib.request.Request(url, body)))
print("key", os.environ["MY_KEY"])
""")
    policy = make_policy()
    command = [sys.executable, "agent.py"]  # in a home folder, or wherever it may be
    cfg = AgentConfig(use="program", command=command, pass_env=["MY_KEY"], sandbox="bwrap")
    runner = make_runner(cfg)
    assert runner
    trajectory = asyncio.run(host(policy, script(policy, "bye"), runner, timeout=120.0))
    assert trajectory.logs == ["the program printed:\nkey hush"]
    assert trajectory.metrics["heard"] == 1


@works
def test_exit_codes_pass_through_the_sandbox() -> None:
    with pytest.raises(Exception, match="ended with exit code 7"):
        printed("exit 7")


def refusal(**settings: Any) -> str:
    with pytest.raises(PreflightError) as raised:
        make_runner(AgentConfig(use="program", command=["sh"], **settings))
    return str(raised.value)


def tool(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / name).write_text(text)
    (folder / "tools" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'tools'}:/usr/bin:/bin")


def test_a_tool_that_is_missing_or_fails_is_told_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n"
    tool(tmp_path, "bwrap", script, monkeypatch)
    said = refusal(sandbox="bwrap")
    assert "bwrap does not work on this machine: No permissions to create new names" in said
    (tmp_path / "tools" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    (tmp_path / "tools" / "bwrap").unlink()
    assert "there is no program 'bwrap'" in refusal(sandbox="bwrap")
    assert "there is no program 'docker'" in refusal(sandbox="docker", image="node:22")


def test_a_sandbox_around_the_home_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path.home().parent)
    assert "holds your home folder" in refusal(sandbox="bwrap")
    assert "holds your home folder" in refusal(sandbox="docker", image="node:22")


def test_docker_gets_the_whole_wall_and_no_value_of_a_variable(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "docker", DOCKER, monkeypatch)
    monkeypatch.setenv("DOCKER_NOTES", str(tmp_path / "notes"))
    (project / ".env").write_text("MY_KEY=hush")
    printed("exit", sandbox="docker", image="node:22", pass_env=["MY_KEY"])
    lines = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    (asked, _), (run, environment), (last, _) = lines
    assert asked[:2] == ["image", "inspect"] and asked[-1] == "node:22"
    name = run[run.index("--name") + 1]
    assert last == ["rm", "--force", name] and name.startswith("art-episode-")
    assert run[:2] == ["run", "--rm"] and run[-3:] == ["node:22", "-c", "exit"]
    assert run[run.index("--entrypoint") + 1] == "sh"
    mounts = [after for word, after in pairwise(run) if word == "--mount"]
    assert mounts[:2] == [
        f"type=bind,source={project},target={project},readonly",
        f"type=bind,source=/dev/null,target={project}/.env,readonly",
    ]
    assert [m.rpartition("=")[2].rpartition("/")[2] for m in mounts[2:]] == ["tmp", name]
    for wall in ("--read-only", "--cap-drop", "no-new-privileges", "never", "host"):
        assert wall in run
    assert "hush" not in " ".join(run) and "MY_KEY" in run and "MY_KEY" in environment
    assert "there is no image" not in refusal(sandbox="docker", image="missing")
    assert "No such image: missing" in refusal(sandbox="docker", image="missing")


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("{use: program, command: [sh], sandbox: docker}", "agent.image is missing"),
        ("{use: program, command: [sh], image: a}", "has no effect with agent.sandbox=none"),
        ("{use: builtin, sandbox: bwrap}", "has no effect with agent.use=builtin"),
        ("{use: program, command: [sh], sandbox: jail}", "bwrap"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    project: Path, agent: str, message: str
) -> None:
    text = f"env: {{use: tic_tac_toe}}\nmodel: {{base: tiny}}\ntrain: {{steps: 1}}\nagent: {agent}"
    (project / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_experiment([project / "config.yaml"], [])
