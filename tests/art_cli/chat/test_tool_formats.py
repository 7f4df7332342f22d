"""Calls of every format, read from what models write: odd ones, broken ones, several at once."""

from __future__ import annotations

import json
import re
import time
from typing import Any, get_args

import pytest
from chat_models import BY_NAME as MODELS
from chat_models import TOOLS, call
from fuzz import any_json, fuzz
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from art_cli.chat.output_format import OutputFormat, thinking_of
from art_cli.chat.tool_formats.arguments import schemas_by_name, typed
from art_cli.chat.tool_formats.names import API, ToolNames
from art_cli.chat.tool_formats.table import BY_NAME, FORMATS
from art_cli.chat.turns import (
    Turn,
    WrittenCall,
    parse_tool_calls,
    read_turn,
    spoken,
    write_turn_text,
)
from art_cli.config.tool_formats import ToolFormatName
from art_cli.types import ToolCall

SCHEMAS = schemas_by_name(TOOLS)
WHY = 'it\'s "late"\n<b>é</b> 😀 \\ {x}'
ODD = {"order": 17, "why": WHY, "more": {"a": [1, {"b": None}], "c": "17"}, "now": True}
JSON = json.dumps(ODD, ensure_ascii=False)
OBJECT = f'{{"name": "cancel", "arguments": {JSON}}}'
LOOK = '{"name": "look_up", "arguments": {"order": "0017"}}'
PYTHON = f"cancel(order=17, why={WHY!r}, more={ODD['more']!r}, now=True)"
LOOK_PYTHON = "look_up(order='0017')"


def xml(text: str) -> str:
    """Fill in the values of both calls, as formats without types write them."""
    more = json.dumps(ODD["more"])
    return text.replace("WHY", WHY).replace("MORE", more)


BOTH = {  # two calls at once
    "hermes": f"<tool_call>{OBJECT}</tool_call>\n<tool_call>\n{LOOK}\n</tool_call>",
    "qwen_xml": xml(
        "<tool_call>\n<function=cancel>\n<parameter=order>\n17\n</parameter>\n"
        "<parameter=why>\nWHY\n</parameter>\n<parameter=more>\nMORE\n</parameter>\n"
        "<parameter=now>\nTrue\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=look_up>\n<parameter=order>0017</parameter>\n</function>\n"
        "</tool_call>"
    ),
    "glm": xml(
        "<tool_call>cancel\n<arg_key>order</arg_key>\n<arg_value>17</arg_value>\n"
        "<arg_key>why</arg_key>\n<arg_value>WHY</arg_value>\n<arg_key>more</arg_key>"
        "<arg_value>MORE</arg_value><arg_key>now</arg_key><arg_value>true</arg_value></tool_call>"
        "<tool_call>look_up\n<arg_key>order</arg_key>\n<arg_value>0017</arg_value>\n</tool_call>"
    ),
    "llama3_json": "; ".join((OBJECT, LOOK)).replace('"arguments"', '"parameters"'),
    "pythonic": f"[{PYTHON}, {LOOK_PYTHON}]",
    "mistral": f'[TOOL_CALLS]cancel[CALL_ID]abcdef123[ARGS]{JSON}[TOOL_CALLS]look_up[ARGS]{{"order"'
    ': "0017"}',
    "mistral_list": f"[TOOL_CALLS][{OBJECT}, {LOOK}]",
    "deepseek_v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>cancel\n"
    f"```json\n{JSON}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n"
    '{"order": "0017"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v31": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>cancel<｜tool▁sep｜>{JSON}"
    '<｜tool▁call▁end｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>{"order": "0017"}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_dsml": xml(
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="cancel">\n'
        '<｜DSML｜parameter name="order" string="false">17</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="why" string="true">WHY</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="more" string="false">MORE</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="now" string="false">true</｜DSML｜parameter>\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="look_up">\n'
        '<｜DSML｜parameter name="order" string="true">0017</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
    "harmony": "<|channel|>commentary to=functions.cancel <|constrain|>json<|message|>"
    f"{JSON}<|call|>"
    '<|start|>assistant to=functions.look_up<|channel|>commentary json<|message|>{"order": "0017"}',
    "gemma4": '<|tool_call>call:cancel{more:{a:[1,{b:None}],c:<|"|>17<|"|>},now:true,order:17,'
    f'why:<|"|>{WHY}<|"|>}}<tool_call|>'
    '<|tool_call>call:look_up{order:<|"|>0017<|"|>}<tool_call|>',
    "gemma3": f"```tool_code\n{PYTHON}\nprint({LOOK_PYTHON})\n```",
    "phi": f"<|tool_call|>[{OBJECT}, {LOOK}]<|/tool_call|>",
    "granite": f"<|tool_call|>[{OBJECT}, {LOOK}]",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.cancel:0"
    f"<|tool_call_argument_begin|>{JSON}<|tool_call_end|><|tool_call_begin|>functions.look_up:1"
    '<|tool_call_argument_begin|>{"order": "0017"}<|tool_call_end|><|tool_calls_section_end|>',
    "minimax": xml(
        '<minimax:tool_call>\n<invoke name="cancel">\n<parameter name="order">17</parameter>\n'
        '<parameter name="why">WHY</parameter>\n<parameter name="more">MORE</parameter>\n'
        '<parameter name="now">true</parameter>\n</invoke>\n<invoke name="look_up">\n'
        '<parameter name="order">0017</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "smollm_python": f"<code>{PYTHON}\n{LOOK_PYTHON}</code>",
    "lfm": f"<|tool_call_start|>[{PYTHON}, {LOOK_PYTHON}]<|tool_call_end|>",
    "nemotron": f"<TOOLCALL>[{OBJECT}, {LOOK}]</TOOLCALL>",
    "json_list": f"<tool_calls>\n{OBJECT}\n{LOOK}\n</tool_calls>",
    "apertus": f'<|tools_prefix|>[{{"cancel": {JSON}}}, {{"look_up": {{"order": "0017"}}}}]'
    "<|tools_suffix|>",
    "cohere": f'<|START_ACTION|>[{{"tool_name": "cancel", "parameters": {JSON}}}, '
    '{"tool_name": "look_up", "parameters": {"order": "0017"}}]<|END_ACTION|>',
}
ALONE = ("llama3_json", "pythonic")  # a turn is a call or it is words
CUT = {  # what a cut in the middle of a call leaves
    "pythonic": "[look_up(order=",
    "harmony": '<|channel|>commentary to=functions.look_up<|message|>{"order": "00',
}


def output_format(name: str) -> OutputFormat:
    return OutputFormat(BY_NAME[name], thinking_of("<think>"))


def read(name: str, text: str) -> Turn:
    return output_format(name).read(text, SCHEMAS)


def test_every_format_can_be_asked_for_and_is_tested() -> None:
    assert {"auto", *BY_NAME} == set(get_args(ToolFormatName))
    assert set(BOTH) == set(BY_NAME)


@pytest.mark.parametrize("name", BOTH)
def test_two_calls_with_odd_arguments_are_read(name: str) -> None:
    turn = read(name, BOTH[name])
    assert turn.calls == [
        {"name": "cancel", "arguments": ODD},
        {"name": "look_up", "arguments": {"order": "0017"}},
    ]
    assert turn.words.strip() == "" and turn.thought == ""


@pytest.mark.parametrize("name", BOTH)
def test_thinking_and_words_stand_apart_from_the_calls(name: str) -> None:
    thought = "<think>\nI look.\n</think>\n\n"
    if name == "harmony":
        thought = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
    words = "" if name in ALONE or name == "harmony" else "A moment. "
    turn = read(name, thought + words + BOTH[name])
    assert turn.thought == "I look." and turn.words.strip() == words.strip()
    assert len(turn.calls) == 2 and not any(isinstance(c, str) for c in turn.calls)
    assert "I look" not in turn.said


@pytest.mark.parametrize("name", BOTH)
def test_a_call_cut_short_is_said_to_be_broken_in_the_formats_own_shape(name: str) -> None:
    text = CUT.get(name) or BOTH[name][: BOTH[name].index("late")]
    (call,) = read(name, text).calls
    assert isinstance(call, str) and call.startswith("error: ") and BY_NAME[name].shape in call


@pytest.mark.parametrize("name", BOTH)
def test_a_turn_of_words_calls_nothing(name: str) -> None:
    turn = read(name, "Order 17 {is} [cancelled]: <b>done</b>.")
    assert turn.calls == [] and turn.words == "Order 17 {is} [cancelled]: <b>done</b>."


@pytest.mark.parametrize("name", BOTH)
def test_the_text_form_of_a_turn_has_the_same_calls(name: str) -> None:
    turn = read(name, f"{BOTH[name]}")
    text = BOTH[name] if output_format(name).is_text_form else write_turn_text(turn)
    assert parse_tool_calls(spoken(text)) == turn.calls
    assert text == BOTH[name] if name == "hermes" else "<tool_call>{" in text


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("qwen_xml", '<tool_call>{"name": "cancel"}</tool_call>', "cannot be read"),
        ("qwen_xml", "<tool_call><function=cancel>17</function></tool_call>", "not at '17'"),
        (
            "qwen_xml",
            "<tool_call><function=cancel><parameter=order>1</parameter>"
            "<parameter=order>2</parameter></function></tool_call>",
            "stands there twice",
        ),
        ("glm", "<tool_call>cancel<arg_key>order</arg_key></tool_call>", "cannot be read"),
        ("llama3_json", '{"name": "cancel", "parameters": {"order": 17}', "not valid JSON"),
        ("llama3_json", '{"name": "cancel", "parameters": 17}', "are not an object"),
        ("mistral", "[TOOL_CALLS]cancel[ARGS]{17}", "of cancel cannot be read"),
        ("mistral", "[TOOL_CALLS]cancel", "cannot be read"),
        ("mistral_list", "[TOOL_CALLS][]", "there is no call in it"),
        ("mistral_list", '[TOOL_CALLS][{"arguments": {}}]', "has no name"),
        ("lfm", "<|tool_call_start|>[cancel(17)]<|tool_call_end|>", "named arguments"),
        ("lfm", "<|tool_call_start|>[cancel(order=f(1))]<|tool_call_end|>", "no value"),
        ("lfm", "<|tool_call_start|>[cancel(order=1e999)]<|tool_call_end|>", "no value"),
        ("lfm", "<|tool_call_start|>[cancel(**{'a': 1})]<|tool_call_end|>", "no value"),
        ("lfm", "<|tool_call_start|>import os<|tool_call_end|>", "not valid Python"),
        ("lfm", "<|tool_call_start|>" + "(" * 5000 + "<|tool_call_end|>", "not valid Python"),
        ("lfm", "<|tool_call_start|><|tool_call_end|>", "is empty"),
        ("gemma4", "<|tool_call>call:cancel{order:17<tool_call|>", "cannot be read"),
        ("gemma4", '<|tool_call>call:cancel{order:"17"}<tool_call|>', "not at"),
        ("apertus", "<|tools_prefix|>[17]<|tools_suffix|>", "one name with its arguments"),
        (
            "harmony",
            "<|channel|>commentary to=functions.cancel<|message|>[1]",
            "are not an object",
        ),
    ],
)
def test_a_broken_call_is_told_what_is_wrong_with_it(name: str, text: str, why: str) -> None:
    (call,) = read(name, text).calls
    assert isinstance(call, str) and why in call
    assert call.startswith("error: ") and call.endswith(f"expected {BY_NAME[name].shape}")


def test_a_good_call_beside_a_broken_one_is_made() -> None:
    text = "<tool_call>\n<function=cancel>\nno\n</function>\n</tool_call>\n" + BOTH["qwen_xml"]
    broken, *good = read("qwen_xml", text).calls
    assert isinstance(broken, str) and len(good) == 2 and not isinstance(good[0], str)


def test_two_turns_mean_the_same_where_they_call_the_same() -> None:
    one = read_turn(f"<think>hm</think>so {call('look_up', order='17')}")
    assert one.means(read_turn(f"<think>\nhm\n</think>\n\nso\n{call('look_up', order='17')}"))
    for other in (
        f"so {call('look_up', order='17')}",
        f"<think>hm</think>{call('look_up', order='17')}",
        f"<think>hm</think>so {call('look_up', order='18')}",
        f"<think>hm</think>so {call('cancel', order='17')}",
        "<think>hm</think>so ",
    ):
        assert not one.means(read_turn(other)), other


def test_calls_without_arguments() -> None:
    for name, text in (
        ("qwen_xml", "<tool_call>\n<function=cancel>\n</function>\n</tool_call>"),
        ("glm", "<tool_call>cancel\n</tool_call>"),
        ("mistral", "[TOOL_CALLS]cancel[ARGS]{}"),
        ("lfm", "<|tool_call_start|>[cancel()]<|tool_call_end|>"),
        ("gemma4", "<|tool_call>call:cancel{}<tool_call|>"),
        ("minimax", '<minimax:tool_call>\n<invoke name="cancel">\n</invoke>\n</minimax:tool_call>'),
        ("kimi", BOTH["kimi"].replace(JSON, "").partition("<|tool_call_end|>")[0]),
    ):
        assert read(name, text).calls == [{"name": "cancel", "arguments": {}}], name


def test_harmony_says_what_is_on_the_final_channel() -> None:
    turn = read(
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
        "Done.",
    )
    assert (turn.thought, turn.said, turn.calls) == ("Hm.", "Done.", [])
    assert read("harmony", "Done.").said == "Done."
    assert read("harmony", "<|channel|>analysis<|message|>I was cut").said == ""
    assert read("harmony", "<|channel|>analysis").said == ""


def test_the_ids_of_calls_are_kept_where_a_format_has_them() -> None:
    assert [c.id for c in read("mistral", BOTH["mistral"]).written] == ["abcdef123", None]
    ids = [c.id for c in read("kimi", BOTH["kimi"]).written]
    assert ids == ["functions.cancel:0", "functions.look_up:1"]


MARK = re.compile(r"<[^<>\n]{1,40}>|\[[A-Z_]+\]")
MARKS = sorted({mark for text in BOTH.values() for mark in MARK.findall(text)})
pieces = st.lists(st.sampled_from([*MARKS, "(", "[", "{", '"', "-", "\\", "1", ":"]) | st.text())


@settings(max_examples=150, deadline=None)
@given(pieces.map("".join))
def test_no_text_breaks_a_reader(text: str) -> None:
    for each in FORMATS:
        turn = read(each.name, text)
        assert all(isinstance(c, str) or isinstance(c["arguments"], dict) for c in turn.calls)


@pytest.mark.parametrize("name", BOTH)
def test_a_long_turn_is_read_at_once(name: str) -> None:
    begin = BOTH[name].partition("17")[0]
    for text in (begin + "x" * 10**5, begin * 10**3, "- " * 10**5 + begin, begin + "(" * 10**5):
        began = time.monotonic()
        read(name, text)
        assert time.monotonic() - began < 2


# ---------------------------------------------------------------- types of arguments


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("17", {"type": "string"}, "17"),
        ("17", {"type": "integer"}, 17),
        ("1.5", {"type": "number"}, 1.5),
        ("True", {"type": "boolean"}, True),
        ("true", {"type": "boolean"}, True),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("None", {"type": ["integer", "null"]}, None),
        ("nullable", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "nullable"),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("['a', None]", {"type": "array"}, ["a", None]),
        ('["a"]', {"$ref": "#/$defs/Tags"}, ["a"]),
        ("red", {"enum": ["red", "blue"]}, "red"),
        ("2", {"enum": [1, 2]}, 2),
        ("1", {"enum": [1, "auto"]}, 1),
        ("auto", {"enum": [1, "auto"]}, "auto"),
        ("1", {"enum": ["1", "auto"]}, "1"),
        ("true", {"enum": [True, "auto"]}, True),
        ("17", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, 17),
        ("17", {"type": ["string", "null"]}, "17"),
        ("null", {"type": "string", "nullable": True}, None),
        ("null", {"type": "string"}, "null"),
        ("none", {"enum": ["none"]}, "none"),
        ("007", {"type": ["integer", "string"]}, "007"),
        ("5", {"anyOf": [{"type": "number"}, {"enum": ["all"]}]}, 5),
        ("17", {}, 17),
        ("seventeen", {}, "seventeen"),
        ("seventeen", {"type": "integer"}, "seventeen"),  # the tool says what is wrong with it
        ('{"a": 1, "a": 2}', {"type": "object"}, '{"a": 1, "a": 2}'),
        ("[" * 5000, {"type": "array"}, "[" * 5000),
        ("", {"type": "string"}, ""),
        (" x\n", {"type": "string"}, " x\n"),
        ("17", {"$ref": "#/$defs/Endless"}, 17),
        ("17", {"type": [{}], "enum": "x", "anyOf": {"a": 1}}, 17),  # of a program that errs
        ("17", ["no schema"], 17),
    ],
)
def test_an_argument_gets_the_type_that_the_schema_says(
    text: str, schema: dict[str, Any], value: Any
) -> None:
    definitions = {"Tags": {"type": "array"}, "Endless": {"$ref": "#/$defs/Endless"}}
    root = {"properties": {"x": schema}, "$defs": definitions}
    got = typed("x", text, root)
    assert got == value and type(got) is type(value)


SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.sampled_from(["auto", "1", "null"])
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null"])
SCHEMAS_OF_SCALARS = st.recursive(
    st.builds(lambda k: {"type": k}, KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True))
    | st.builds(lambda v: {"enum": v}, st.lists(SCALARS, min_size=1, max_size=4))
    | st.builds(lambda v: {"const": v}, SCALARS)
    | st.just({"$ref": "#/$defs/Word"})
    | st.just({}),
    lambda inner: st.builds(
        lambda key, parts: {key: parts},
        st.sampled_from(["anyOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=5,
)


@given(SCHEMAS_OF_SCALARS, SCALARS)
@settings(deadline=None, max_examples=400)
def test_what_a_schema_allows_is_read_as_something_that_it_allows(schema: Any, value: Any) -> None:
    """Some texts stand for several such values; none is read as one that is not among them."""
    root = {"properties": {"x": schema}, "$defs": {"Word": {"enum": ["auto", 1]}}}
    meets = Draft202012Validator({**root, "required": ["x"]}).is_valid
    text = value if isinstance(value, str) else json.dumps(value)
    if meets({"x": value}):
        assert meets({"x": typed("x", text, root)})


# ---------------------------------------------------------------- there and back


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
arguments = st.fixed_dictionaries(
    {"order": st.integers(-(10**6), 10**6)},
    optional={
        "why": st.text(max_size=40),
        "more": st.dictionaries(st.text(max_size=6), json_values, max_size=3),
        "now": st.booleans(),
        "tags": st.lists(st.text(max_size=6), max_size=3),
    },
)


def _turn(found: list[dict[str, Any]]) -> Turn:
    calls = [ToolCall(name="cancel", arguments=a) for a in found]
    pieces = tuple(WrittenCall(text="", call=c) for c in calls)
    return Turn(thought="", said="", pieces=pieces)


def _has_markup(value: Any) -> bool:
    """Whether a text in it is what a format's tags, or its own escapes, are made of."""
    return any(mark in json.dumps(value, ensure_ascii=False) for mark in ("<", ">", "[", "`", "｜"))


@settings(max_examples=60, deadline=None)
@given(st.lists(arguments, min_size=1, max_size=3))
@example([{"order": 0, "why": "\\````` x"}])
def test_what_a_format_writes_it_reads_back(found: list[dict[str, Any]]) -> None:
    turn = _turn(found)
    for each in FORMATS:
        text = OutputFormat(each, ("<think>", "</think>")).write(turn)
        if each.writes and text is not None and not any(m in text for m in ("</", "<|tool")):
            assert read(each.name, text).calls == turn.calls, each.name
    assert read_turn(write_turn_text(turn)).calls == turn.calls


WRITTEN = ("qwen3-coder", "qwen3.5", "glm-4.6", "mistral-nemo", "deepseek-v3.1", "minimax-m2")
DIALECTS = {name: MODELS[name].renderer(TOOLS) for name in WRITTEN}


@settings(max_examples=30, deadline=None)
@given(arguments)
def test_what_a_template_writes_is_read_back_as_the_same_call(found: dict[str, Any]) -> None:
    """But for texts that hold a format's own tags, which no template escapes."""
    found = {k: v for k, v in found.items() if not _has_markup(v)}
    for name, renderer in DIALECTS.items():
        written = renderer.capabilities.written(_turn([found]))
        assert written is not None
        assert renderer.read(written).calls == [{"name": "cancel", "arguments": found}], name


PARTS = st.sampled_from(
    [*("a", "get", "_", ".", "/", "-", " ", ":0", "functions."), "\u5217", "\u00e9", '"', "<", "1"]
)
ODD_NAMES = st.lists(PARTS, min_size=1, max_size=4).map("".join) | st.text(min_size=1, max_size=6)


@fuzz(300)
@given(st.lists(ODD_NAMES, min_size=1, max_size=4, unique=True))
def test_what_is_written_reads_back_to_the_original_name(odd: list[str]) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in odd]
    for tool_format in BY_NAME.values():
        names = ToolNames(tools, tool_format.names)
        assert all(t["function"]["parameters"]["type"] == "object" for t in names.shown())
        shown = [tool["function"]["name"] for tool in names.shown()]
        assert len(set(shown)) == len(odd) and [names.name(alias) for alias in shown] == odd
        calls = [ToolCall(name=alias, arguments={"k": "v"}) for alias in shown]
        turn = OutputFormat(tool_format, thinking_of("")).read(tool_format.write(calls), {})
        meant = [c if isinstance(c, str) else c["name"] for c in names.meant(turn).calls]
        assert meant == odd, tool_format.name


PLAIN = ("a-b", "a.b", "a/b", "$filter", "a b", "d\u00e9", "\u5217", "2d", "from", "ids", "a_b")
ODD_KEYS = ("", "ids[]", '"', "<b>", "a>b", "x:y", "{a}", "a,b", "\n", "x" * 65, "properties")
ARGUMENTS = st.sampled_from((*PLAIN, *ODD_KEYS))
GIVEN = st.text("a1\u00e9 .,", max_size=4) | st.sampled_from(["17", "", "true"])
VALUES = st.recursive(
    GIVEN, lambda v: st.lists(v, max_size=2) | st.dictionaries(ARGUMENTS, v, max_size=3)
)
API_ARGUMENT = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def schema_of(value: Any) -> dict[str, Any]:
    """Return a schema of a value that names all of its properties."""
    if isinstance(value, dict):
        properties = {key: schema_of(each) for key, each in value.items()}
        return {"type": "object", "properties": properties, "required": [*value]}
    if isinstance(value, list):
        return {"type": "array", "items": {"anyOf": [*map(schema_of, value), {"type": "null"}]}}
    return {"type": "string"}


def ways_to_say(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return schemas that mean the same: by a reference, in parts, or as they are."""
    defs = {"Whole": schema, "Odd/~%": {"type": "object"}}
    return [
        schema,
        {"$ref": "#/$defs/Whole", "$defs": defs, "description": "All."},
        {"allOf": [schema, {"$ref": "#/$defs/Odd~1~0%"}], "$defs": defs},
    ]


def in_gemmas(call: ToolCall) -> str:
    """Return a call as Gemma's template writes it: no key has quotes, and texts have its own."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{written(each)}" for key, each in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(written, value)) + "]"
        return f'<|"|>{value}<|"|>'

    return f"<|tool_call>call:{call['name']}{written(call['arguments'])}<tool_call|>"


SPELLINGS = list(dict.fromkeys(each.names for each in FORMATS))


@fuzz(100)
@given(st.dictionaries(ARGUMENTS, VALUES, max_size=4))
def test_arguments_read_back_by_their_own_names(found: dict[str, Any]) -> None:
    calls = [ToolCall(name="cancel", arguments=found)]
    for schema in ways_to_say(schema_of(found)):
        tool = {"type": "function", "function": {"name": "cancel", "parameters": schema}}
        for spelling in SPELLINGS:
            names = ToolNames([tool], spelling)
            [shown] = names.shown()
            (call,) = names.spoken(_turn([found])).calls
            assert not isinstance(call, str)
            if names:  # what meets the schema meets it under the other names, too
                valid = Draft202012Validator(shown["function"]["parameters"])
                assert valid.is_valid(call["arguments"]), spelling
            for each in FORMATS:
                if each.names != spelling:
                    continue
                text = in_gemmas(call) if each.name == "gemma4" else each.write([call])
                turn = OutputFormat(each, thinking_of("")).read(text, schemas_by_name([shown]))
                assert names.meant(turn).calls == calls, each.name


@fuzz(300)
@given(st.dictionaries(ARGUMENTS, VALUES, max_size=4))
def test_an_api_is_sent_arguments_that_it_takes(found: dict[str, Any]) -> None:
    for schema in ways_to_say(schema_of(found)):
        names = ToolNames([{"type": "function", "function": {"name": "a.b", "parameters": schema}}])
        parameters = names.shown()[0]["function"]["parameters"]
        for part in (parameters, *parameters.get("allOf", ())):
            assert all(map(API_ARGUMENT.fullmatch, part.get("properties", ())))
        made = {"name": "a.b", "arguments": json.dumps(found)}
        message = {"role": "assistant", "tool_calls": [{"id": "x", "function": made}]}
        (sent,) = names.sent(message)["tool_calls"]
        arguments = json.loads(sent["function"]["arguments"])
        assert all(map(API_ARGUMENT.fullmatch, arguments))
        assert [*arguments.values()] == [*found.values()]  # nested names stay
        back = names.called(sent["function"]["name"], sent["function"]["arguments"])
        assert back[0] == "a.b" and json.loads(back[1]) == found


def test_a_property_that_is_named_like_an_alias_is_told_apart() -> None:
    nested = {"type": "object", "properties": {"ids": {"type": "array"}, "$x": {}}}
    same = {"$ref": "#"}
    schema = {
        "type": "object",
        "properties": {"ids[]": {"type": "array"}, "more": nested, "ids": {}, "same": same},
        "required": ["ids[]"],
        "dependentRequired": {"ids[]": ["more"]},
    }
    names = ToolNames([{"type": "function", "function": {"name": "f", "parameters": schema}}])
    shown = names.shown()[0]["function"]["parameters"]
    assert [*shown["properties"]] == ["ids_2", "more", "ids", "same"]
    assert shown["required"] == ["ids_2"] and shown["dependentRequired"] == {"ids_2": ["more"]}
    assert shown["properties"]["more"] == nested and names.listed() == ["f(ids_2 for ids[])"]
    said = {"ids_2": [1], "ids": 2, "more": {"ids": [3], "ids_2": 4}, "same": {"ids_2": [5]}}
    meant = {"ids[]": [1], "ids": 2, "more": {"ids": [3], "ids_2": 4}, "same": {"ids[]": [5]}}
    assert json.loads(names.called("f", json.dumps(said))[1]) == meant
    both = json.dumps({"ids_2": [1], "ids[]": [2]})  # neither is lost: the tool says what is wrong
    assert names.called("f", both) == ("f", both)


KEYWORDS = st.sampled_from(
    [*("properties", "required", "$ref", "allOf", "items", "$defs", "dependentRequired", "not")]
)
ODD_SCHEMAS = st.recursive(
    any_json | st.sampled_from([True, "#", "#/$defs/a", ["ids[]"], {"ids[]": {}}]),
    lambda inner: st.dictionaries(KEYWORDS, inner | st.dictionaries(ARGUMENTS, inner, max_size=2)),
    max_leaves=6,
)


@fuzz(300)
@given(ODD_SCHEMAS, st.dictionaries(ARGUMENTS, VALUES, max_size=3))
def test_a_schema_of_any_kind_can_be_shown_and_calls_keep_their_arguments(
    schema: Any, found: dict[str, Any]
) -> None:
    """As users and programs write them: whatever stands in the place of a schema."""
    tool = {"type": "function", "function": {"name": "cancel", "parameters": schema}}
    for spelling in (*SPELLINGS, API):
        names = ToolNames([tool], spelling)
        names.shown()
        (call,) = names.meant(names.spoken(_turn([found]))).calls
        assert call == {"name": "cancel", "arguments": found}


def test_a_schema_that_refers_to_each_part_twice_does_not_grow() -> None:
    def twice(n: int) -> dict[str, Any]:
        return {"allOf": [{"$ref": f"#/$defs/{n}"}] * 2}

    defs = {str(n): twice(n + 1) for n in range(40)} | {"40": {"properties": {"ids[]": {}}}}
    function = {"name": "f", "parameters": {"$defs": defs, **twice(0)}}
    [shown] = ToolNames([{"type": "function", "function": function}]).shown()
    assert shown["function"]["parameters"] == function["parameters"]
