"""An env, a judge, a program and a server that say what a terminal would obey: none of it does."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import LoopbackJudge, refused, scored
from short_run import CONFIG

from art_cli.cli.main import main
from art_cli.errors import EXIT_FAILED, EXIT_PREFLIGHT, EXIT_USAGE

# The clipboard, a title, a cleared screen, the same by C1 controls, a colour, a line over the one
# before, the direction of text, and rich's own markup.
HOSTILE = (
    "\x1b]52;c;aGk=\x07\x1b]0;mine\x07\x1b[2J\x9b2J\x9d0;mine\x9c\x1b[35;5m over\rwritten"
    "\x08\x08\x7f\x0b\u202e [red]red[/red] [link=http://x]y[/link] :warning:"
)
OBEYED = ("\x1b]", "\x1b[2J", "\x1b[35;5m", "over\rwritten", "\x1b]8", "\u202e")
SEEN = r"\u001b]52;c;aGk=\u0007"
OURS = re.compile(r"\x1b\[[0-9;]*m")  # colours
MOVES = re.compile(r"\x1b\[(?:\?25[hl]|[0-9]*A|[02]?K)|\r")  # of the panel and the line of progress
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ENV = f"""
import art_cli as art
H = {HOSTILE!r}

class Hostile(art.Env):
    __doc__ = H

    @classmethod
    def scenarios(cls, cfg, split):
        for n in range(8):
            data = {{"level": H[: 30 + n % 2], "kind": n}}
            yield art.Scenario(id=f"{{split}}-{{n}}{{H}}", split=split, seed=n, data=data)

    @art.tool()
    def look(self) -> str:
        "Look."
        raise art.ToolError(H)

    async def start(self):
        return H

    async def reply(self, text):
        if self.scenario.split == "val" and self.scenario.seed == 1:
            raise RuntimeError(H + chr(0xD800))
        return art.Done()

    def judge_context(self):
        return H

    async def score(self, trajectory):
        self.metrics[H] = 1.0
        return self.rng.random()

    @classmethod
    def demonstrations(cls, cfg, num):
        yield [{{"role": "user", "content": H}}, {{"role": "assistant", "content": "a"}}]

class Closed(Hostile):
    async def start(self):
        raise RuntimeError(H + "\\nok       forged")
"""
PROGRAM = f"import sys; print({HOSTILE!r}); sys.exit(3)"
SMALL = (
    *("env.use=env.py:Hostile", "eval={every: 1, episodes: 3}", "train.steps=1"),
    *("train.scenarios_per_step=2", "sft.num_demonstrations=1", "sft.epochs=1"),
)

Art = Callable[..., tuple[int, str]]


@pytest.fixture(params=["a pipe", "a terminal"])
def art(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Art:
    """Run `art` in this process -> its exit code, and what it printed, once seen to be clean."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    Path("config.yaml").write_text(CONFIG)
    Path("env.py").write_text(ENV)
    Path("program.py").write_text(PROGRAM)
    is_terminal = request.param == "a terminal"

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["art", *arguments])
        code, printed = (_on_terminal if is_terminal else _into_pipe)(monkeypatch)
        assert "Traceback (most recent" not in printed
        assert [each for each in OBEYED if each in printed] == []
        assert (
            CONTROL.findall((MOVES if is_terminal else OURS).sub("", OURS.sub("", printed))) == []
        )
        return code, printed

    return run


def _ended() -> int:
    with pytest.raises(SystemExit) as ended:
        main()
        sys.exit(0)
    assert ended.value.code is None or isinstance(ended.value.code, int)
    return ended.value.code or 0


def _into_pipe(monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", out)
        code = _ended()
    out.seek(0)
    return code, out.read()


def _on_terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    master, slave = pty.openpty()
    read: list[bytes] = []

    def listen() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while some := os.read(master, 65536):
                read.append(some)

    listener = threading.Thread(target=listen)
    listener.start()
    with open(slave, "w", encoding="utf-8") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal)
        patched.setattr(sys, "stderr", terminal)
        code = _ended()
    listener.join()
    os.close(master)
    return code, b"".join(read).decode()


def judged_by(judge: LoopbackJudge) -> str:
    return f"judge={{model: {judge.model}, api_base: '{judge.api_base}', retries: 0}}"


def spoilt(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry | {"explanation": HOSTILE} for entry in found]


def test_a_run_and_what_is_told_of_it_later(art: Art) -> None:
    with LoopbackJudge(then=scored(change=spoilt)) as judge:
        code, printed = art("run", "config.yaml", judged_by(judge), *SMALL)
        assert code == 0, printed
        command = ("eval", "runs/test/short", "--checkpoint", "last", "--episodes", "3")
        code, printed = art(*command, "--html", "page.html")
        assert code == 0 and "failed: " in printed and SEEN in printed
    page = Path("page.html").read_text()
    assert CONTROL.findall(page) == [] and "\u202e" not in page
    code, printed = art("show", "runs/test/short", "1", "0", "--full")
    assert code == 0 and SEEN in printed.replace("\r\n", "") and "[red]red[/red]" in printed
    for command in ("show", "runs", "logs", "diff", "replay", "why"):
        words = {"diff": ("runs/test/short",), "replay": ("1", "0")}.get(command, ())
        assert art(command, "runs/test/short", *words)[0] == 0, command


@pytest.mark.slow
def test_the_checks_of_an_env(art: Art) -> None:
    assert art("validate", "config.yaml", *SMALL)[0] == 0
    assert art("envs", "check", "env.py:Hostile", "--episodes", "3")[0] == EXIT_FAILED
    code, printed = art("envs", "check", "env.py:Closed", "--episodes", "3")
    assert code == EXIT_FAILED and SEEN in printed and "\nok       forged" not in printed
    code, printed = art("validate", "config.yaml", "env.use=env.py:Closed")
    assert code == EXIT_USAGE and SEEN in printed
    assert art("validate", "config.yaml", "env.use=env.py:Closed", "--json")[0] == EXIT_USAGE
    assert art("validate", "config.yaml", f"train.loss={HOSTILE}")[0] == EXIT_USAGE


def test_a_judge_and_a_server_that_fail(art: Art) -> None:
    with LoopbackJudge(then=refused(401, HOSTILE)) as judge:
        code, printed = art("run", "config.yaml", judged_by(judge), *SMALL)
    assert code == EXIT_PREFLIGHT and "the judge cannot be used" in printed
    server = "judge={model: openai/x, command: ['{python}', program.py]}"
    code, printed = art("run", "config.yaml", server, *SMALL)
    assert code == EXIT_PREFLIGHT and SEEN in printed


def test_a_program_that_fails(art: Art) -> None:
    agent = f"agent={{use: program, command: ['{sys.executable}', program.py]}}"
    code, printed = art("run", "config.yaml", agent, *SMALL)
    assert code == EXIT_FAILED and "the agent failed: ended with exit code 3" in printed
    assert art("runs")[0] == 0
