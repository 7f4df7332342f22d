"""What is printed is what a terminal shows, not what it obeys, and no secret of the environment."""

import io
import json

import pytest

from art_cli import keys
from art_cli.terminal.screen import Screen
from art_cli.terminal.text import hide, masked, say, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\u001b]0;title\u0007"),
        ("\x9b2J\x7f", r"\u009b2J\u007f"),
        ("one\rtwo\b", r"one\rtwo\b"),
        ("pay \u202e001\u2069\u200b\ufeff", r"pay \u202e001\u2069\u200b\ufeff"),
        ("\ud800 \U000e0041", r"\ud800 \udb40\udc41"),
        ("a\tb\r\nc", "a\tb\nc"),
    ],
)
def test_what_a_terminal_would_obey_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_the_letters_of_the_world_and_emoji_stay() -> None:
    text = "Zürich 東京 می‌خواهم 👩‍🚀 ✔️ ±→█"
    assert visible(text) == text


def test_one_line_stays_one_line() -> None:
    assert visible("a\nerror: b", lines=False) == r"a\nerror: b"


def test_json_stays_the_same_json() -> None:
    row = {"a": "\x1b\x7f\x9b\u202e", "b": "\n"}
    for ascii_only in (True, False):
        assert json.loads(visible(json.dumps(row, ensure_ascii=ascii_only))) == row


def test_tables_keep_their_own_styles_and_take_no_markup() -> None:
    screen = Screen(file=io.StringIO(), force_terminal=True, width=60, color_system="standard")
    screen.print("[red]x[/red] :smile: \x1b[31m", style="bold")
    assert screen.file.getvalue() == "\x1b[1m[red]x[/red] :smile: \\u001b[31m\x1b[0m\n"  # type: ignore[attr-defined]


def test_a_pipe_that_knows_few_characters_gets_those() -> None:
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    say("a · b", file=out)
    assert out.buffer.getvalue() == b"a ? b\n"  # type: ignore[attr-defined]


@pytest.fixture
def _hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("art_cli.terminal.text._names", {})
    monkeypatch.setattr("art_cli.keys._given", {})
    monkeypatch.setattr("art_cli.keys._known", keys._Forms({}, 0))
    hide("hunter2:it's", "${oc.env:LONG}")
    hide("1", "${oc.env:SHORT}")


@pytest.mark.usefixtures("_hidden")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such file: /tmp/hunter2:it's", "no such file: /tmp/${oc.env:LONG}"),
        ("401 for user hunter2", "401 for user ${oc.env:LONG}"),
        (repr({"a": "hunter2:it's"}), """{'a': ${oc.env:LONG}}"""),
        ("no env is called '1', step 1 of 21", "no env is called ${oc.env:SHORT}, step 1 of 21"),
        (
            "GET https://me:pass@host/v1 and ssh://git@host",
            "GET https://***@host/v1 and ssh://git@host",
        ),
    ],
)
def test_what_the_environment_alone_should_know_is_not_printed(text: str, shown: str) -> None:
    assert masked(text) == shown
