"""Results of `art doctor` and `art envs check`: in colour on a terminal, whole at any width."""

import io
import re
from pathlib import Path

import pytest
from short_run import CONFIG
from typer.testing import CliRunner

from art_cli.cli.check_results import tell_finding
from art_cli.cli.main import app
from art_cli.preflight.check_result import CheckResult
from art_cli.terminal.screen import Screen

STYLE = re.compile(r"\x1b\[[0-9;]*m")
LONG = "a finding that says more than a narrow line holds, with\na second line in its words"
BAD = CheckResult(
    check="episodes", status="failed", what=LONG, where="env.py:3", todo="mend it · now"
)


def test_on_a_terminal_it_is_coloured_wrapped_with_an_indent_and_whole() -> None:
    out = io.StringIO()
    tell_finding(Screen(file=out, width=60, force_terminal=True, color_system="standard"), BAD, 26)
    shown = out.getvalue()
    assert "\x1b[1;31mfailed   episodes" in shown
    lines = STYLE.sub("", shown).splitlines()
    assert len(lines) > 3 and all(len(line) <= 60 for line in lines)
    assert all(line.startswith(" " * 26) for line in lines[1:])
    said = " ".join(line[26:].strip() for line in lines)
    assert said == LONG.replace("\n", "\\n") + " env.py:3 · mend it · now"


def test_in_a_pipe_nothing_is_coloured_or_cut() -> None:
    out = io.StringIO()
    tell_finding(Screen(file=out), BAD, 26)
    what, more = out.getvalue().splitlines()
    assert what == f"failed   episodes         {LONG}".replace("\n", "\\n")
    assert more == f"{' ' * 26}env.py:3 · mend it · now"


def test_where_a_terminal_lacks_a_letter_another_stands_for_it() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    tell_finding(Screen(file=out), BAD, 26)
    out.flush()
    assert b"env.py:3 ? mend it ? now" in raw.getvalue()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["validate", "config.yaml", "--gpu", "L4"], "ok: test/short"),
        (["doctor"], "ok       machine"),
    ],
)
def test_commands_are_whole_at_60_columns(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    whole = CliRunner().invoke(app, command).stdout
    assert "\x1b" not in whole and said in whole
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    narrow = CliRunner().invoke(app, command).stdout
    assert "\x1b[" in narrow
    plain = STYLE.sub("", narrow)
    assert all(len(line) <= 60 for line in plain.splitlines())
    sizes = re.compile(r"\d+(\.\d+)?(?=\s+GiB)")  # of memory and disk, which change meanwhile
    kept = [sizes.sub("", text).split() for text in (plain, whole)]
    assert set(kept[1]) <= set(kept[0])
