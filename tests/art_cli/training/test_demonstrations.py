"""Demonstrations: the env's own, and files as people have them."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_cli.envs.base import Env
from art_cli.envs.tools import schemas_of
from art_cli.errors import UsageError
from art_cli.training.demonstrations import load_demonstrations, texts_of
from art_cli.types import Message
from art_envs.order_desk import OrderDesk

USER = {"role": "user", "content": "a"}
THINKS = {"type": "thinking", "thinking": "hm"}
ANSWER = {"role": "assistant", "content": "b"}
AT, TEXT = '{"at": 1}', '{"input": "at 1"}'
LOOK = '<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
CALL: dict[str, Any] = {"function": {"name": "look", "arguments": '{"at": 1}'}}


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
        (
            line(USER, {"role": "assistant", "content": [1]}),
            "expected text as content, got a part 1",
        ),
        (line(USER), "has no assistant message to learn from"),
        (line(USER, {**ANSWER, "weight": 0}), "has no assistant message to learn from"),
        (line(USER, {**ANSWER, "weight": 0.5}), "a weight is 0 (not trained) or 1, got 0.5"),
        (line(USER, {**ANSWER, "content": ""}), "message 2, the assistant's, has no words"),
        (line(USER, {**ANSWER, "content": "<think>a</think>\n"}), "has no words and no calls"),
        (line({**USER, "tool_calls": [CALL]}, ANSWER), "a user's message with a call of a tool"),
        (line({**USER, "content": [THINKS]}, ANSWER), "a user's message with a part of thinking"),
        (line(USER, {**ANSWER, "audio": {"id": "x"}}), "a message with audio; only text"),
        (line(USER, {**ANSWER, "content": [{"type": "image_url"}]}), "only text can be learned"),
        (line(USER, {**ANSWER, "function_call": {"name": "f", "arguments": "[1]"}}), "JSON object"),
        (line(USER, {**ANSWER, "tool_calls": "[{"}), "expected tool calls, got '[{'"),
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


@pytest.mark.parametrize(
    ("answer", "learned"),
    [
        ({"function_call": {"name": "look", "arguments": '{"at": 1}'}}, LOOK),
        ({"content": "I look.", "tool_calls": json.dumps([CALL])}, f"I look.{LOOK}"),
        ({"tool_calls": [{"custom": {"name": "look", "input": "at 1"}}]}, LOOK.replace(AT, TEXT)),
        ({"thinking": "hm", "content": "ok"}, "<think>\nhm\n</think>\n\nok"),
        ({"reasoning_content": "hm", "content": "ok"}, "<think>\nhm\n</think>\n\nok"),
        (
            {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"}]},
            "<think>\nhm\n</think>\n\nok",
        ),
        ({"refusal": "I cannot."}, "I cannot."),
        ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, "I cannot."),
        ({"content": [{"type": "output_text", "text": "o"}, {"text": "k"}]}, "ok"),
    ],
)
def test_spellings_that_files_have_are_read(
    tmp_path: Path, answer: dict[str, Any], learned: str
) -> None:
    ((_, message),) = load(tmp_path / "d.jsonl", line(USER, {"role": "assistant", **answer}))
    assert message["content"] == learned


def test_the_words_of_a_tool_are_its_own(tmp_path: Path) -> None:
    """tau2 has the call's id in `id`, and `error`; OpenAI of before, a role `function`."""
    called = {"role": "assistant", "tool_calls": [{**CALL, "id": "c1"}]}
    ours = {"role": "tool", "id": "c1", "content": "no such order", "error": True}
    old = {"role": "function", "name": "look", "content": "none"}
    ((_, _, first, _, second, _),) = load(
        tmp_path / "d.jsonl", line(USER, called, ours, {**called, "content": "again"}, old, ANSWER)
    )
    assert first == {"role": "tool", "name": "look", "content": "no such order", "is_error": True}
    assert second == {"role": "tool", "name": "look", "content": "none"}


def test_what_the_assistant_says_in_a_row_is_one_turn(tmp_path: Path) -> None:
    calls = {"role": "assistant", "tool_calls": [CALL]}
    aside = {**ANSWER, "content": "not trained", "weight": 0}
    (found,) = load(tmp_path / "d.jsonl", line(USER, ANSWER, calls, USER, aside, ANSWER))
    assert [m["content"] for m in found] == ["a", f"b\n{LOOK}", "a", "not trained", "b"]


ANY = st.sampled_from(["system", "user", "assistant", "tool", "function", "developer", "robot"])
PARTS = st.lists(
    st.builds(
        lambda kind, text: {"type": kind, ("text" if kind != "refusal" else kind): text},
        st.sampled_from(["text", "input_text", "refusal", "image_url"]),
        st.sampled_from(["A1", "B2", ""]),
    ),
    max_size=3,
)
MESSAGES = st.fixed_dictionaries(
    {"role": ANY, "content": st.none() | st.sampled_from(["C3", "D4", ""]) | PARTS},
    optional={
        "tool_calls": st.sampled_from([[CALL], [], None, "x", json.dumps([CALL])]),
        "function_call": st.sampled_from([CALL["function"], None, {"name": "f"}]),
        "refusal": st.sampled_from(["E5", None]),
        "thinking": st.sampled_from(["F6", None]),
        "weight": st.sampled_from([0, 1, 2]),
        "error": st.booleans(),
        "tool_call_id": st.just("c1"),
    },
)


@given(st.lists(MESSAGES, min_size=1, max_size=4))
@settings(deadline=None, max_examples=300)
def test_what_a_file_says_is_learned_or_refused_with_its_line(messages: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        try:
            (found,) = load(Path(folder) / "d.jsonl", line(*messages))
        except UsageError as e:
            assert f"{folder}/d.jsonl:1: " in str(e)
            return
    said = "".join(m["content"] for m in found)
    for message in messages:
        is_ours = message["role"] == "assistant"
        wanted = re.findall(r"[A-E][1-5]", json.dumps(message))
        wanted += ["F6"] * (is_ours and message.get("thinking") == "F6")
        wanted += ["look"] * bool(message.get("tool_calls"))
        assert all(word in said for word in wanted), (message, said)
    assert all(m["role"] != "assistant" or m["content"].strip() for m in found)
