"""The capabilities of a chat template, found by probing it. No model is known by name.

The template renders small conversations with distinctive words. The results show the format of its
tool calls, where its turns end, and the form in which it needs its messages.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import Any

from art_cli.chat.output_format import OutputFormat, thinking_of
from art_cli.chat.template import ChatTemplate
from art_cli.chat.tool_formats.arguments import schemas_by_name
from art_cli.chat.tool_formats.format import ToolFormat
from art_cli.chat.tool_formats.table import BY_NAME, FORMATS, HERMES
from art_cli.chat.turns import Turn, WrittenCall
from art_cli.errors import UsageError
from art_cli.types import ToolCall

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "zlookz",
        "description": "Look.",
        "parameters": {
            "type": "object",
            "properties": {
                "zkeyz": {"type": "string", "description": "a key"},
                "znumz": {"type": "integer", "description": "a number"},
            },
            "required": ["zkeyz"],
        },
    },
}
CALL = ToolCall(name="zlookz", arguments={"zkeyz": "zvaluez", "znumz": 17})
CALL_ID = re.compile(r"call0000\d")  # of a call; used where a template writes ids
SCHEMAS = schemas_by_name([TOOL])
TAG_BEGUN = re.compile(r"[<\[][^>\]\s]*\Z")
USER = {"role": "user", "content": "zquestionz"}
MORE = {"role": "user", "content": "zmorez"}
ANSWER = {"role": "assistant", "content": "zanswerz"}
RESULT = {"role": "tool", "content": "zresultz"}
SYSTEM = {"role": "system", "content": "zsystemz"}


def _turn(thought: str = "", words: str = "", calls: int = 0) -> Turn:
    written = [WrittenCall(text="", call=CALL) for _ in range(calls)]
    pieces = (words, *written) if words else (*written,)
    return Turn(thought=thought, said=words, pieces=pieces)


TURNS = (_turn(calls=1), _turn(words="zwordsz", calls=2), _turn("zthoughtz", "zwordsz"))
TURNS = (*TURNS, _turn("zthoughtz", calls=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTexts:
    """The text of a tokenizer's special and added tokens."""

    special: list[str]
    added: list[str]  # special or not
    eos: list[str]  # the tokenizer's, and those of the model's own settings
    model_ends: bool  # whether the model's settings name any


class TemplateCapabilities:
    """The features of one chat template, and the form of messages that it takes.

    Raises UsageError if the template's turns never end, or it does not use the requested format.
    """

    def __init__(self, template: ChatTemplate, tool_format: str, tokens: TokenTexts) -> None:
        self._template = template
        self._tokens = tokens
        # Some templates fail without tools.
        self._tools = None if self._try([USER]) is not None else [TOOL]
        self.refuses_system = not self._shows("zsystemz", [SYSTEM, USER])
        systems = ([{**SYSTEM, "content": "z"}, SYSTEM, USER], [USER, ANSWER, SYSTEM, MORE])
        self.system_needs_user = not self._shows("zsystemz", [SYSTEM, ANSWER])
        self.one_system = not all(self._shows("zsystemz", said) for said in systems)
        self.refuses_repeats = self._refuses_two(MORE)
        empty = [USER, {**ANSWER, "content": ""}, MORE]
        self.refuses_empty = self._try(empty, self._tools) is None
        self.ends_itself = True
        self.end_of_turn = self._find_end_of_turn()
        self.shows_tools = self._shows("zlookz", [USER], [TOOL])
        self._tools = [TOOL] if self.shows_tools else self._tools
        self.arguments_as_text = False
        self.thinks_in = ""  # "keys" of a message, "blocks" of its content; "": in its text
        self.joins_words = False  # with the thinking, in a turn with a call
        self.one_call = False  # per message
        self.output_format, self.writes_calls = self._recognise(tool_format)
        self.in_parts = self.writes_calls and self._needs_parts()
        if self.in_parts:
            self._probe_parts()
        self.knows_thinking = self.output_format.tags[0] in template.source
        self.has_tool_role = "tool" in template.source and self._shows_results()
        self.refuses_results = not self.in_parts and self._refuses_two(RESULT)  # two in a row
        self.end_of_calls = self._find_end_of_calls()

    # ------------------------------------------------------------------------- probing

    def _refuses_two(self, message: dict[str, Any]) -> bool:
        """Return whether a message after an answer is accepted once but not twice in a row."""
        one, two = ([USER, ANSWER, *[message] * n] for n in (1, 2))
        takes = [self._try(said, self._tools) is not None for said in (one, two)]
        return takes == [True, False]

    def _try(self, messages: list[Any], tools: Any = None, generate: bool = False) -> str | None:
        try:
            return self._template(messages, tools, generate=generate)
        except UsageError as e:
            if isinstance(e.__context__, MemoryError):  # any messages would need as much memory
                raise
            return None

    def _shows(self, word: str, messages: list[Any], tools: Any = None) -> bool:
        return word in (self._try(messages, tools or self._tools) or "")

    def parts(self, turn: Turn, ids: list[str]) -> dict[str, Any]:
        """Convert a turn to a template's message, with separate thinking, text and calls."""
        words = turn.words.strip()
        message: dict[str, Any] = {"role": "assistant", "content": words}
        if turn.thought and turn.written and self.joins_words and words:
            turn, message["content"] = _joined(turn, words), ""
        if turn.thought and self.thinks_in == "keys":
            message |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), turn.thought)
        elif turn.thought and self.thinks_in == "blocks":
            said = [{"type": "text", "text": words}] if words else []
            message["content"] = [{"type": "thinking", "thinking": turn.thought}, *said]
        elif turn.thought:
            opening, closing = self.output_format.tags
            message["content"] = f"{opening}\n{turn.thought}\n{closing}\n\n{words}"
        if turn.written:
            calls = zip(turn.written, ids, strict=True)
            message["tool_calls"] = [self._call(call, id) for call, id in calls]
        if self.refuses_empty and not message["content"] and not turn.written:
            message["content"] = " "
        return message

    def _call(self, written: WrittenCall, id: str) -> dict[str, Any]:
        call = written.call
        if isinstance(call, str):  # the template must write something in place of the call
            name = written.name or "invalid_call"
            call = ToolCall(name=name, arguments={"text": written.text})
        arguments: Any = call["arguments"]
        if self.arguments_as_text:
            arguments = json.dumps(arguments, ensure_ascii=False)
        function = {"name": call["name"], "arguments": arguments}
        return {"id": id, "type": "function", "function": function}

    def written(self, turn: Turn) -> str | None:
        """Return a turn as the template writes it, between generation prompt and end of turn."""
        ids = [f"call0000{n}" for n in range(len(turn.written))]
        prompt = self._try([USER], self._tools, generate=True)
        alone = self._try([USER, self.parts(turn, ids)], self._tools)
        if prompt is None or alone is None:
            return None
        begin = _shared(prompt, alone)
        if begin != prompt:  # many tags begin with "<"
            begin = TAG_BEGUN.sub("", begin)
        return alone[len(begin) : self.body_end(alone, len(begin))]

    def written_call(self, num: int = 1) -> str | None:
        """Return a turn with `num` calls as the model writes it; None if that is not supported."""
        turn = _turn(calls=num)
        return self.written(turn) if self.writes_calls else self.output_format.write(turn)

    def body_end(self, text: str, begin: int) -> int:
        """Return the offset at which the last turn's end begins. Its body starts at `begin`."""
        trimmed = text.rstrip()
        ends = {*self._tokens.eos, self.end_of_turn} - {""}
        for end in sorted(ends, key=len, reverse=True):
            if trimmed.endswith(end):
                return len(trimmed) - len(end)
        if self.ends_itself and (place := text.rfind(self.end_of_turn, begin)) >= 0:
            return place
        return len(text)

    # ---------------------------------------------------------------------- its formats

    def _recognise(self, wanted: str) -> tuple[OutputFormat, bool]:
        """Return the output format, and whether the template can write its calls."""
        tags = thinking_of(self._template.source)
        self.output_format = OutputFormat(HERMES, tags)
        found, unknown = self._recognise_written(tags)
        if wanted != "auto":
            chosen: ToolFormat = BY_NAME[wanted]
            if chosen is not HERMES and found not in (None, chosen):
                assert found
                raise UsageError(
                    f"model.tool_format is {wanted}, but the chat template of "
                    f"{self._template.name!r} writes tool calls as {found.name}: {found.shape}; "
                    "set it to auto, or to hermes to have the tools described by hand"
                )
            self._keep_description(chosen, found)
            return OutputFormat(chosen, tags), found is chosen
        if found:
            return OutputFormat(found, tags), True
        marked = HERMES if unknown else self._marked()
        self._keep_description(marked, None)
        return OutputFormat(marked, tags), False

    def _marked(self) -> ToolFormat:
        """Return the format that the template describes, or for which the tokenizer has tokens."""
        for place in (self._description(), "".join(self._tokens.added)):
            for each in FORMATS:
                if each.mark and each.mark in place:
                    return each
        return HERMES

    def _description(self) -> str:
        return self._try([USER], [TOOL]) or "" if self.shows_tools else ""

    def _recognise_written(self, tags: tuple[str, str]) -> tuple[ToolFormat | None, bool]:
        """Return the format that reads the call that the template wrote, if any.

        The second value is True if the template writes the call in a format unknown here.
        """
        unknown = False
        for as_text in (False, True):
            self.arguments_as_text = as_text
            body = self.written(_turn(calls=1)) or ""
            for each in FORMATS:
                if OutputFormat(each, tags).read(body, SCHEMAS).calls == [CALL]:
                    return each, False
            unknown = unknown or "zvaluez" in body
        self.arguments_as_text = False
        return None, unknown

    def _keep_description(self, chosen: ToolFormat, found: ToolFormat | None) -> None:
        """Drop the template's description of the tools if it describes another format."""
        marked = chosen.mark and chosen.mark in self._description()
        if found is not chosen and not marked:
            self.shows_tools, self._tools = False, None

    def _needs_parts(self) -> bool:
        """Return whether rendering a sampled turn differs from rendering its separate parts."""
        self._find_thinking()
        for turn in TURNS:
            ids = [f"call0000{n}" for n in range(len(turn.written))]
            parts = self.parts(turn, ids)
            own = self.written(turn) or ""
            sampled = {"role": "assistant", "content": own}
            results = self._results(turn, ids)
            for after in (results, [*results, ANSWER, {**MORE, "content": "and"}]):
                bare = [{"role": m["role"], "content": m["content"]} for m in after]
                apart = self._try([USER, parts, *after], self._tools, generate=True)
                whole = self._try([USER, sampled, *bare], self._tools, generate=True)
                if own and apart is not None and apart != whole:
                    return True
        return False

    def _results(self, turn: Turn, ids: list[str]) -> list[dict[str, Any]]:
        results = [
            {"role": "tool", "name": "zlookz", "tool_call_id": id, "content": f"zresult{id}z"}
            for id in ids
        ]
        return results if turn.written else [MORE]

    def _find_thinking(self) -> None:
        turns = (_turn("zthoughtz", calls=1), _turn("zthoughtz", "zwordsz"))
        for turn, place in itertools.product(turns, ("keys", "blocks")):
            self.thinks_in = place
            written = self.written(turn)
            if written and self.output_format.read(written, SCHEMAS).thought == "zthoughtz":
                return
        self.thinks_in = ""

    def _probe_parts(self) -> None:
        both = _turn(calls=2)
        ids = ["call00000", "call00001"]
        said = [USER, self.parts(both, ids), *self._results(both, ids)]
        taken = self._try(said, self._tools, generate=True) is not None
        self.one_call = not taken or (self.written(both) or "").count("zvaluez") < 2
        self.joins_words = self.written(_turn("zthoughtz", "zwordsz", 1)) is None

    def _shows_results(self) -> bool:
        """Return whether the template renders tool results: some know tools but not results."""
        turn = _turn(calls=1)
        before = self.parts(turn, ["call00000"]) if self.in_parts else {**ANSWER}
        result = dict(RESULT)
        if self.in_parts:
            result |= {"name": "zlookz", "tool_call_id": "call00000"}
        text = self._try([USER, before, result], self._tools, generate=True)
        return "zresultz" in (text or "")

    def _find_end_of_turn(self) -> str:
        """Return the special token that ends a turn: after its content, or before the next turn."""
        tail = self._template([USER, ANSWER], self._tools).rpartition("zanswerz")[2]
        behind = self._run(tail.lstrip(), self._tokens.special)
        if behind:  # the end of a tool call may come before the end of the turn
            return next((t for t in behind if t in self._tokens.eos), behind[0])
        self.ends_itself = False
        text = self._template([USER, ANSWER, MORE], self._tools)
        found = self._run(text.partition("zanswerz")[2].lstrip(), self._tokens.eos)
        if not found and not self._tokens.model_ends:
            raise UsageError(
                "the chat template does not end an assistant's turn with a special token "
                f"(it writes {tail!r}), so a turn could never stop"
            )
        return found[0] if found else ""

    def _run(self, text: str, tokens: list[str]) -> list[str]:
        """Return the consecutive tokens with which a text begins."""
        found: list[str] = []
        while fitting := [t for t in tokens if t and text.startswith(t)]:
            found.append(max(fitting, key=len))
            text = text.removeprefix(found[-1])
        return found

    def _find_end_of_calls(self) -> str:
        """Return the token that ends a turn with a tool call."""
        ids = ["call00000"]
        turn = _turn(calls=1)
        message = self.parts(turn, ids) if self.writes_calls else ANSWER
        alone = self._try([USER, message], self._tools)
        text = self._try([USER, message, *self._results(turn, ids)], self._tools, generate=True)
        if alone is None or text is None:
            return self.end_of_turn
        ends = [*self._tokens.eos, self.end_of_turn]
        behind = text[self.body_end(alone, alone.rfind("zvaluez")) :].lstrip()
        return (*self._run(behind, ends), self.end_of_turn)[0]


def _shared(one: str, other: str) -> str:
    """Return the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))]


def _joined(turn: Turn, words: str) -> Turn:
    return Turn(thought=f"{turn.thought}\n{words}", said="", pieces=tuple(turn.written))
