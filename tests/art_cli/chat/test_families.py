"""Whole conversations under the chat templates of real models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chat_models import (
    ASK,
    BY_NAME,
    FAMILIES,
    SHIPPED,
    SYSTEM,
    TOOLS,
    ChatModel,
    Talk,
    call,
    result,
    user,
)

from art_cli.chat.capabilities import TemplateCapabilities
from art_cli.chat.openai_format import write_turn
from art_cli.chat.render import Renderer
from art_cli.chat.turns import read_turn
from art_cli.errors import UsageError

MODELS = Path(__file__).parents[3] / "docs" / "models.md"
ODD: dict[str, Any] = {
    "order": 17,
    "why": 'it\'s "late"\n<b>é</b> 😀 \\ {x}',
    "more": {"a": [1, {"b": None}], "c": "17", "d": True, "e": -0.5},
    "now": False,
    "tags": ["17", "", "a,b"],
}
CANCEL, LOOK = call("cancel", **ODD), call("look_up", order="0017")
MADE = [{"name": "cancel", "arguments": ODD}, {"name": "look_up", "arguments": {"order": "0017"}}]
THOUGHT = "<think>\nI look.\n</think>\n\n"
# New sequences behind results, behind the user's next words, and behind the results after those,
# where the model thought nothing, and where it thought. All else would be a surprise.
FORKS = {
    "apertus": ((0, 1, 0), (0, 1, 0)),  # results of calls stand in the same turn as its words
    "deepseek-r1-distill": ((1, 0, 1), (1, 0, 1)),  # drops all thinking at once
    "deepseek-v3": ((1, 0, 1), (0, 0, 1)),
    "deepseek-v3.2": ((0, 1, 0), (0, 1, 0)),
    "glm-4.6": ((0, 0, 0), (0, 1, 0)),
    "glm-4.7-flash": ((1, 1, 1), (0, 1, 0)),  # writes an empty thought as none
    "gpt-oss": ((0, 1, 0), (0, 1, 0)),  # another end of earlier turns
    "minimax-m2": ((1, 1, 1), (0, 1, 0)),
    "mistral-nemo": ((1, 1, 1), (1, 1, 1)),  # moves the tools, the system's words go
    "mistral-small-3.2": ((0, 1, 0), (0, 1, 0)),  # moves the tools to the last user
    "qwen3": ((0, 0, 0), (0, 1, 0)),
    "qwen3.5": ((0, 1, 0), (0, 1, 0)),
    "qwen3.6": ((0, 1, 0), (0, 1, 0)),
    "step-3.5-flash": ((0, 1, 0), (0, 1, 0)),
}
FAST = (
    "qwen3",
    "qwen3-coder",
    "gpt-oss",
    "deepseek-v3.1",
    "mistral-small-3.2",
    "kimi-k2",
    "glm-4.6",
)
PARAMS = [
    pytest.param(model, id=model.name, marks=() if model.name in FAST else pytest.mark.slow)
    for model in SHIPPED
]


def talk(model: ChatModel, thought: str, calls: str, folder: Path = FAMILIES) -> list[int]:
    """Play two questions with calls, checking all along; return the forks behind each part."""
    renderer = model.renderer(TOOLS, folder)
    talk, forks = Talk(renderer), [0]
    num = len(read_turn(calls).calls)
    turn = renderer.read(talk.say(thought + calls))
    assert turn.calls == MADE[:num]
    if thought and "I look." in renderer.text([*talk.conversation.said], generate=False):
        assert turn.thought == "I look."
    assert "I look." not in turn.said
    for heard, answer in (
        ([result(f"zok{n}z") for n in range(num)], f"{thought}It is done."),
        ([user("And order 18?")], thought + call("look_up", order="18")),
        ([result("zfoundz")], f"{thought}It is there."),
    ):
        talk.hear(*heard)
        assert talk.is_whole(), "the tokens are not those of the whole conversation"
        assert all(m["content"] in renderer.text(talk.conversation.said) for m in heard)
        forks.append(talk.forks - sum(forks))
        said = renderer.read(talk.say(answer))
        assert said.calls == read_turn(answer).calls
        assert said.said.strip() == read_turn(answer).said.strip() or said.calls
    talk.check()
    return forks[1:]


@pytest.mark.parametrize("thought", ["", THOUGHT], ids=["plain", "thinking"])
@pytest.mark.parametrize("model", PARAMS)
def test_a_conversation_with_calls(model: ChatModel, thought: str) -> None:
    expected = FORKS.get(model.name, ((0, 0, 0), (0, 0, 0)))[bool(thought)]
    assert talk(model, thought, CANCEL) == list(expected)
    if not model.renderer(TOOLS).capabilities.one_call:
        assert talk(model, thought, CANCEL + LOOK) == list(expected)


@pytest.mark.parametrize("model", PARAMS)
def test_a_broken_call_gets_its_result_and_the_episode_goes_on(model: ChatModel) -> None:
    renderer = model.renderer(TOOLS)
    own = renderer.own_words(LOOK)
    talk = Talk(renderer)
    said = talk.say_own(own[: own.index("0017")], renderer.capabilities.end_of_calls)
    (broken,) = renderer.read(said).calls
    assert isinstance(broken, str) and renderer.capabilities.output_format.format.shape in broken
    talk.hear(result(broken))
    assert "error: " in renderer.text(talk.conversation.said)
    talk.say(LOOK)
    talk.hear(result("zfoundz"))
    talk.say("It is there.")
    talk.hear(user("Thanks"))
    talk.check()


@pytest.mark.parametrize("model", PARAMS)
@pytest.mark.parametrize("text", ["", " ", "</think>", "[TOOL_CALLS]", "<tool_call>", "<|call|>"])
def test_nothing_that_a_model_says_is_refused_by_its_template(model: ChatModel, text: str) -> None:
    renderer = model.renderer(TOOLS)
    talk = Talk(renderer)
    said = talk.say_own(text)
    calls = renderer.read(said).calls
    talk.hear(*([result("no") for _ in calls] or [user("What?")]))
    talk.say("It is done.")
    talk.hear(user("Thanks"))
    talk.check()


@pytest.mark.parametrize("model", PARAMS)
def test_a_turn_cut_short_goes_on(model: ChatModel) -> None:
    renderer = model.renderer(TOOLS)
    talk = Talk(renderer)
    talk.say_ids(list(renderer.encode("Let me se")))
    talk.hear(user("Go on"))
    assert talk.renderer.text(talk.conversation.said).count("Go on") == 1
    talk.check()


@pytest.mark.parametrize("model", PARAMS)
def test_a_special_token_in_what_a_tool_or_user_says_is_broken_up(model: ChatModel) -> None:
    renderer = model.renderer(TOOLS)
    counts: list[list[int]] = []
    for tokens in ("", " ".join(renderer._specials)):
        talk = Talk(renderer, SYSTEM, user(f"Cancel 17. {tokens}"))
        talk.say(LOOK)
        talk.hear(result(f"found {tokens}"))
        ids = talk.conversation.ids
        special = renderer._tokenizer.convert_tokens_to_ids(renderer._specials)
        assert isinstance(special, list)
        counts.append([ids.count(i) for i in special])
    assert counts[0] == counts[1]


def row(renderer: Renderer, name: str) -> str:
    """Return what docs/models.md says of a family."""
    capabilities: TemplateCapabilities = renderer.capabilities
    opening, _ = capabilities.output_format.tags
    form = capabilities.output_format.format.name
    tags = f"`{opening}`".replace("|", r"\|") if form != "harmony" else "channels"
    thinking = tags if opening in capabilities._template.source or form == "harmony" else "none"
    described = "its template" if capabilities.shows_tools else "`art`"
    system = "the first user's words" if capabilities.refuses_system else "its own"
    several = "one" if capabilities.one_call else "several"
    return f"| {name} | `{form}` | {described} | {several} | {thinking} | {system} |"


def test_the_table_in_the_docs_says_what_the_templates_do() -> None:
    rows = [row(model.renderer(TOOLS), model.name) for model in SHIPPED]
    missing = [each for each in rows if each not in MODELS.read_text()]
    assert missing == [], "\n".join(rows)


def test_every_template_has_its_source_and_licence() -> None:
    listed = set(re.findall(r"^\| (\S+\.jinja) \|", (FAMILIES / "README.md").read_text(), re.M))
    assert listed == {p.name for p in FAMILIES.glob("*.jinja")} == {f"{n}.jinja" for n in BY_NAME}


# ---------------------------------------------------------------- single families


def test_the_end_that_is_trained_is_the_one_that_the_template_goes_on_behind() -> None:
    renderer = BY_NAME["glm-4.6"].renderer(TOOLS)
    assert renderer.end_of_turn == "<|user|>"
    ends = {renderer._tokenizer.decode([i]) for i in renderer.stop_ids}
    assert ends == {"<|user|>", "<|observation|>", "<|endoftext|>"}
    talk = Talk(renderer)
    talk.say(LOOK)
    assert renderer._tokenizer.decode(talk.sampled[-1][-1:]) == "<|observation|>"
    before = len(talk.conversation.ids)
    talk.hear(result("ok"))
    new = renderer._tokenizer.decode(talk.conversation.ids[before:])
    assert new.startswith("\n<tool_response>") and "<|observation|>" not in new
    talk.say("Done.")
    assert renderer._tokenizer.decode(talk.sampled[-1][-1:]) == "<|user|>"


def test_a_turn_that_another_role_would_have_followed_forks() -> None:
    """Its end is the name of who speaks next, and that was another one."""
    renderer = BY_NAME["glm-4.6"].renderer(TOOLS)
    talk = Talk(renderer)
    talk.say_own(renderer.own_words(LOOK), "<|user|>")
    talk.hear(result("ok"))
    assert talk.forks == 1 and talk.is_whole()
    talk.check()


def test_an_end_that_no_role_begins_with_forks() -> None:
    talk = Talk(BY_NAME["glm-4.6"].renderer(TOOLS))
    talk.say_own("\n<think></think>\nDone.", "<|endoftext|>")
    talk.hear(user("Thanks"))
    assert talk.forks == 1 and talk.is_whole()


def test_gpt_oss_ends_a_call_and_an_answer_in_different_ways() -> None:
    renderer = BY_NAME["gpt-oss"].renderer(TOOLS)
    assert (renderer.end_of_turn, renderer.capabilities.end_of_calls) == ("<|return|>", "<|call|>")
    talk = Talk(renderer)
    said = talk.say_own(
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.look_up <|constrain|>json<|message|>{"order": "17"}',
        "<|call|>",
    )
    assert "<|channel|>" in said and "<|call|>" not in said
    assert renderer.text_form(said) == "<think>\nHm.\n</think>\n\n" + call("look_up", order="17")
    talk.hear(result("ok"))
    assert talk.forks == 0


def test_a_tokenizer_that_marks_the_tags_as_special_does_not_lose_the_calls() -> None:
    renderer = BY_NAME["granite-4.0"].renderer(TOOLS)
    assert "<tool_call>" in renderer._specials
    talk = Talk(renderer)
    assert talk.say_own(LOOK) == LOOK
    assert renderer.read(LOOK).calls == MADE[1:]


def test_thinking_in_every_style_is_not_heard() -> None:
    for name, text in (
        ("ministral-3", "[THINK]secret[/THINK]Hello"),
        ("seed-oss", "<seed:think>secret</seed:think>Hello"),
        ("apertus", "<|inner_prefix|>secret<|inner_suffix|>Hello"),
        ("qwen3.5", "secret\n</think>\n\nHello"),
    ):
        renderer = BY_NAME[name].renderer(TOOLS)
        turn = renderer.read(Talk(renderer).say_own(text))
        assert (turn.thought, turn.said) == ("secret", "Hello"), name
        message = write_turn(turn, with_tools=True)
        assert message["reasoning_content"] == "secret" and message["content"] == "Hello"


def test_the_ids_of_results_are_those_that_the_model_gave_to_its_calls() -> None:
    for name, text, shown in (
        ("kimi-k2", None, "## Return of functions.look_up:0"),
        ("mistral-nemo", '[TOOL_CALLS][{"name": "look_up", "id": "abcdef123"}]', "abcdef123"),
        ("mistral-nemo", '[TOOL_CALLS][{"name": "look_up", "id": "a:1"}]', "call00200"),
        ("mistral-nemo", "[TOOL_CALLS][broken", "call00200"),
        ("mistral-small-3.2", "[TOOL_CALLS]look_up[CALL_ID]x[ARGS]{}", "call00200"),
    ):
        renderer = BY_NAME[name].renderer(TOOLS)
        talk = Talk(renderer)
        talk.say_own(text or renderer.own_words(LOOK))
        talk.hear(result("zfoundz"))
        assert shown in renderer.text(talk.conversation.said), name


def test_a_call_that_has_to_be_made_begins_in_the_models_own_format() -> None:
    for name, opening in (
        ("qwen3", '<tool_call>{"name": "look_up", "arguments": '),
        ("qwen3-coder", "<tool_call>\n<function=look_up>\n"),
        ("qwen3.5", "</think>\n\n<tool_call>\n<function=look_up>\n"),  # it would be thinking
        ("ministral-3", "[TOOL_CALLS]look_up[ARGS]"),
    ):
        renderer = BY_NAME[name].renderer(TOOLS)
        talk = Talk(renderer)
        conversation = Talk(renderer).conversation.__class__(renderer)
        conversation.add_messages([SYSTEM, ASK], conversation.opening("look_up"))
        assert conversation.ids == [*talk.conversation.ids, *renderer.encode(opening)], name


@pytest.mark.parametrize("model", PARAMS)
def test_odd_names_of_arguments_are_said_in_every_format(model: ChatModel) -> None:
    properties = {name: {"type": "string"} for name in ("ids[]", "$top", "a b", "from", "<x>")}
    parameters = {"type": "object", "properties": properties, "required": ["ids[]"]}
    function = {"name": "find", "description": "Find.", "parameters": parameters}
    renderer = model.renderer([{"type": "function", "function": function}])
    arguments = {name: f"z{n}z" for n, name in enumerate(properties)}
    talk = Talk(renderer)
    assert renderer.read(talk.say(call("find", **arguments))).calls == [
        {"name": "find", "arguments": arguments}
    ]
    talk.hear(result("zokz"))
    assert talk.is_whole()
    talk.check()


def test_users_in_a_row_become_one_turn_where_roles_must_alternate() -> None:
    renderer = BY_NAME["mistral-nemo"].renderer(None)
    assert renderer.capabilities.refuses_repeats
    assert "[INST]a\nb[/INST]" in renderer.text([user("a"), user("b")])


# ---------------------------------------------------------------- settings


def test_template_args_reach_the_template() -> None:
    model = BY_NAME["qwen3"]
    tokenizer = model.tokenizer(model.template())
    off = Renderer(tokenizer, TOOLS, template_args={"enable_thinking": False})
    assert off.text([ASK]).endswith("<think>\n\n</think>\n\n")
    assert not Renderer(tokenizer, TOOLS).text([ASK]).endswith("</think>\n\n")


def test_a_template_arg_that_the_template_does_not_read_is_a_users_mistake() -> None:
    for name, reads in (
        ("qwen3", "it reads enable_thinking. Did you mean 'enable_thinking'?"),
        ("qwen2.5", "it reads none."),
        ("gpt-oss", "it reads builtin_tools, model_identity, reasoning_effort."),
    ):
        tokenizer = BY_NAME[name].tokenizer(BY_NAME[name].template())
        with pytest.raises(UsageError, match="does not read 'enable_thinkin'") as e:
            Renderer(tokenizer, TOOLS, template_args={"enable_thinkin": False})
        assert reads in str(e.value)


def test_a_format_that_the_template_does_not_speak_is_a_users_mistake() -> None:
    with pytest.raises(UsageError, match=r"tool_format is mistral, .* as hermes: <tool_call>"):
        BY_NAME["qwen3"].renderer(TOOLS, tool_format="mistral")


def test_hermes_can_always_be_asked_for_and_is_described_by_hand() -> None:
    renderer = BY_NAME["mistral-small-3.2"].renderer(TOOLS, tool_format="hermes")
    text = renderer.text([SYSTEM, ASK])
    assert renderer.tools_by_hand and "[AVAILABLE_TOOLS]" not in text
    assert "To call one, answer with <tool_call>" in text
    talk = Talk(renderer)
    assert talk.say(CANCEL + LOOK) == CANCEL + LOOK
    talk.hear(result("a"), result("b"))
    talk.say("Done.")
    talk.hear(user("Thanks"))
    assert talk.forks == 0 and talk.is_whole()


def test_a_format_that_no_template_describes_is_described_by_hand() -> None:
    renderer = BY_NAME["smollm3"].renderer(TOOLS, tool_format="smollm_python")
    assert "answer with <code>NAME(KEY=VALUE)</code>" in renderer.text([SYSTEM, ASK])
    talk = Talk(renderer)
    assert talk.say(LOOK) == "<code>look_up(order='0017')</code>"
    assert renderer.read("<code>look_up(order='0017')</code>").calls == MADE[1:]


def test_tools_that_a_template_does_not_show_are_described_in_its_own_format() -> None:
    renderer = BY_NAME["deepseek-v3.1"].renderer(TOOLS)
    text = renderer.text([SYSTEM, ASK])
    assert renderer.tools_by_hand and "answer with <" in text and "<object>" in text
