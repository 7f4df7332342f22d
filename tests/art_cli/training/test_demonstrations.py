"""Demonstrations: the env's own, and files as people have them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from art_cli.envs.base import Env
from art_cli.envs.tools import schemas_of
from art_cli.errors import UsageError
from art_cli.training.demonstrations import load_demonstrations, texts_of
from art_cli.types import Message
from art_envs.order_desk import OrderDesk

USER = {"role": "user", "content": "a"}
ANSWER = {"role": "assistant", "content": "b"}
CALL = {"function": {"name": "look", "arguments": '{"at": 1}'}}


def load(path: Path, text: str, num: int = 10) -> list[list[Message]]:
    path.write_text(text, encoding="utf-8")
    return load_demonstrations(str(path), Env, None, num)


def line(*messages: Any) -> str:
    return json.dumps({"messages": messages}) + "\n"


def test_an_env_gives_at_most_so_many() -> None:
    assert len(load_demonstrations("env", OrderDesk, OrderDesk.Config(), 3)) == 3


def test_an_env_without_any_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"Env has no demonstrations; override demonstrations\(\)"):
        load_demonstrations("env", Env, None, 3)


def test_an_env_that_fails_has_its_line() -> None:
    class Broken(Env):
        @classmethod
        def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
            yield [{}["x"]]

    with pytest.raises(UsageError, match=rf"Broken.demonst.* failed: {__file__}:\d+: KeyError"):
        load_demonstrations("env", Broken, None, 3)


def test_a_file_holds_a_conversation_a_line(tmp_path: Path) -> None:
    text = line(USER, ANSWER) + "\n" + json.dumps([USER, ANSWER]) + "\n" + line(USER, ANSWER)
    assert load(tmp_path / "d.jsonl", text) == [[USER, ANSWER]] * 3
    assert len(load(tmp_path / "d.jsonl", text, num=2)) == 2


def test_no_more_lines_are_read_than_are_used(tmp_path: Path) -> None:
    assert len(load(tmp_path / "d.jsonl", line(USER, ANSWER) + "{broken", num=1)) == 1


def test_separators_within_a_text_do_not_split_the_line(tmp_path: Path) -> None:
    said = "one\u2028two\x85three"
    row = {"messages": [USER, {"role": "assistant", "content": said}]}
    text = "\ufeff" + json.dumps(row, ensure_ascii=False) + "\r\n"  # as Windows writes it
    ((_, answer),) = load(tmp_path / "d.jsonl", text)
    assert answer["content"] == said


@pytest.mark.parametrize(
    "calls", [[CALL], [{"name": "look", "arguments": {"at": 1}}], CALL, [{**CALL, "id": "x"}]]
)
def test_tool_calls_become_what_the_policy_is_to_write(tmp_path: Path, calls: Any) -> None:
    answer = {"role": "assistant", "content": None, "tool_calls": calls}
    ((_, message),) = load(tmp_path / "d.jsonl", line(USER, answer))
    assert message["content"] == '<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{broken\n", "not valid JSON"),
        ("3\n", 'expected {"messages": [...]}'),
        ('{"messages": []}\n', "with at least one message"),
        ('{"prompt": "a"}\n', 'expected {"messages": [...]}'),
        (line({"role": "robot", "content": "a"}), "a role among ('system', 'developer'"),
        (line("hello"), "got 'hello'"),
        (line(USER, {"role": "assistant", "content": [1]}), "expected text as content, got [1]"),
        (line(USER), "has no assistant message, so there is nothing to learn from"),
        (line(USER, {**ANSWER, "tool_calls": [{"function": None}]}), "expected a tool call with a"),
        (line(USER, {**ANSWER, "tool_calls": [{"function": {}}]}), "a name and JSON arguments"),
        (line(USER, {**ANSWER, "tool_calls": 5}), "expected a tool call"),
        (line(USER, {**ANSWER, "tool_calls": ["look"]}), "expected a tool call"),
    ],
)
def test_a_malformed_line_has_its_place(tmp_path: Path, bad: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path / "d.jsonl", line(USER, ANSWER) + bad)
    assert f"{tmp_path}/d.jsonl:2: " in str(raised.value) and words in str(raised.value)


def test_files_that_are_not_there_or_not_text_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"there is no file {tmp_path}/nowhere.jsonl"):
        load_demonstrations(f"{tmp_path}/nowhere.jsonl", Env, None, 1)
    with pytest.raises(UsageError, match="holds no conversation"):
        load(tmp_path / "empty.jsonl", "\n\n")
    (tmp_path / "binary").write_bytes(b"\x80\x81")
    with pytest.raises(UsageError, match=r"cannot read .*binary: 'utf-8' codec"):
        load_demonstrations(f"{tmp_path}/binary", Env, None, 1)


def test_a_tokenizer_learns_from_what_is_said_and_from_the_tools() -> None:
    texts = texts_of([[{"role": "user", "content": "hello"}]], schemas_of(OrderDesk))
    assert texts[0] == "user\nhello"
    assert "exchange_order order_id size: Exchange an order." in texts
