"""A chat template in Go's language, as Ollama reads it, that renders what the tokenizer's own does.

What the tokenizer's template writes before, between and behind the messages is found by rendering
words that stand out, and written down in the other language. Longer conversations then show whether
that is all there is to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from art_cli.errors import UsageError

SYSTEM, USER, ANSWER, RESULT, MORE = "zsystemz", "zuserz", "zanswerz", "zresultz", "zmorez"
LIST = "\0"  # stands for the tools, one a line
CALL, OTHER_CALL, ARGUMENTS, THOUGHT = "zcallz", "zothercallz", {"zkeyz": "zvaluez"}, "zthoughtz"
Render = Callable[..., str]  # messages, tools=None, generate=False -> the text
Around = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The text that a template writes around what is said."""

    system: str  # before a system message
    told: dict[bool, str]  # behind it, with tools or without; LIST stands for the tools
    untold: dict[bool, str]  # before all else where there is none
    beside: str  # behind the first user's words there, if that is where the tools are told
    user: Around
    assistant: Around
    generation: str
    results: tuple[str, str, str] = ("", "", "")  # before, between, behind neighbouring results
    call: tuple[str, str, str] = ("", "", "")  # before the name, before the arguments, behind
    after_words: str = ""  # before the first call, where something was said
    between_calls: str = ""
    thought: Around | None = None
    keeps_thoughts: bool = False  # also of turns before the last user message
    tools: str = ""  # the env's own, as they were trained on


def go_template(render: Render, tools: list[dict[str, Any]]) -> str:
    """`render(messages, tools=..., generate=...)` is the tokenizer's template, as one serves with.

    The env's own `tools` are told to the letter; of others Ollama keeps less than it was given. The
    arguments of a call come in the order of their names: Ollama has forgotten another one.
    Raises UsageError where Go's language cannot say what the template does.
    """
    try:
        frame = _probe(render, tools)
        for messages in _conversations(bool(tools)):
            for offered in ([], tools) if tools else ([],):
                if _rendered(frame, messages, bool(offered)) != render(
                    messages, tools=offered or None, generate=True
                ):
                    raise ValueError("what it writes depends on more than its neighbours")
    except ValueError as e:
        raise UsageError(
            f"this model's chat template cannot be said in Ollama's language ({e}); deploy it "
            "--to merged, serve or skyserve"
        ) from None
    return _written(frame, [tool["function"]["name"] for tool in tools])


# ------------------------------------------------------------------------ what it writes around


def _said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def _calling(content: str, *names: str) -> dict[str, Any]:
    calls = [{"type": "function", "function": {"name": n, "arguments": ARGUMENTS}} for n in names]
    return _said("assistant", content, tool_calls=calls)


def _probe(render: Render, tools: list[dict[str, Any]]) -> _Frame:
    ask, answer, more = _said("user", USER), _said("assistant", ANSWER), _said("user", MORE)
    text = render([ask, answer, more])
    ends = _behind(text, MORE), _behind(render([ask, answer]), ANSWER)
    user = _cut(_between(text, ANSWER, MORE), ends[1]), ends[0]
    assistant = _cut(_between(text, USER, ANSWER), ends[0]), ends[1]
    generation = _cut(_behind(render([ask], generate=True), USER), user[1])
    told, untold, beside, listed = {}, {}, "", ""
    for offered in ([], tools) if tools else ([],):
        text = render([_said("system", SYSTEM), ask], tools=offered or None)
        told[bool(offered)] = _cut(_between(text, SYSTEM, USER), "", user[0])
        text = render([ask, answer, more], tools=offered or None)
        untold[bool(offered)] = _cut(_between(text, "", USER), "", user[0])
        beside = _cut(_between(text, USER, ANSWER), "", user[1] + assistant[0])
    if tools:
        listed = _listed(told[True], told[False], tools)
        told[True], untold[True], beside = (
            text.replace(listed, LIST) for text in (told[True], untold[True], beside)
        )
    return _Frame(
        system=render([_said("system", SYSTEM), ask]).partition(SYSTEM)[0],
        told=told,
        untold=untold,
        beside=beside,
        user=user,
        assistant=assistant,
        generation=generation,
        tools=listed,
        **(_probe_tools(render, user, assistant, generation) if tools else {}),
        **_probe_thoughts(render, user, assistant),
    )


def _listed(head: str, without: str, tools: list[dict[str, Any]]) -> str:
    """Return how the tools are told: JSON, one a line, or a text of the template's own."""
    for ascii_only in (False, True):
        lines = "\n".join(json.dumps(t, ensure_ascii=ascii_only) for t in tools)
        if lines in head:
            return lines
    return _cut(head, "", without)


def _probe_tools(
    render: Render, user: Around, assistant: Around, generation: str
) -> dict[str, Any]:
    ask, one, two = _said("user", USER), _said("tool", RESULT), _said("tool", MORE)
    text = render([ask, _said("assistant", ANSWER), one, two], generate=True)
    before = _cut(_between(text, ANSWER, RESULT), assistant[1])
    results = before, _between(text, RESULT, MORE), _cut(_behind(text, MORE), "", generation)
    arguments = json.dumps(ARGUMENTS)
    text = render([ask, _calling("", CALL), one])
    name = _cut(_between(text, USER, CALL), user[1] + assistant[0])
    close = _cut(_between(text, arguments, RESULT), "", assistant[1] + before)
    call = name, _between(text, CALL, arguments), close
    text = render([ask, _calling(ANSWER, CALL, OTHER_CALL), one])
    return {
        "results": results,
        "call": call,
        "after_words": _cut(_between(text, ANSWER, CALL), "", name),
        "between_calls": _cut(_between(text, arguments, OTHER_CALL), close, name),
    }


def _probe_thoughts(render: Render, user: Around, assistant: Around) -> dict[str, Any]:
    ask = _said("user", USER)
    thinking = _said("assistant", ANSWER, reasoning_content=THOUGHT)
    text = render([ask, thinking])
    if THOUGHT not in text:
        return {}
    before = _cut(_between(text, USER, THOUGHT), user[1] + assistant[0])
    kept = THOUGHT in render([ask, thinking, ask])
    return {"thought": (before, _between(text, THOUGHT, ANSWER)), "keeps_thoughts": kept}


def _between(text: str, before: str, behind: str) -> str:
    """Return what stands between two words; from the beginning, where the first is none."""
    rest = text.partition(before)[2] if before else text
    found, there, _ = rest.partition(behind)
    if not there:
        raise ValueError("it does not write all that is said")
    return found


def _behind(text: str, word: str) -> str:
    if word not in text:
        raise ValueError("it does not write all that is said")
    return text.partition(word)[2]


def _cut(text: str, head: str, tail: str = "") -> str:
    """Return what is left without the two."""
    if not (text.startswith(head) and text.endswith(tail) and len(text) >= len(head + tail)):
        raise ValueError("a message is written differently beside another one")
    return text[len(head) : len(text) - len(tail)]


# --------------------------------------------------------------------- whether that is all of it


def _conversations(tools: bool) -> list[list[dict[str, Any]]]:
    ask, answer, more = _said("user", "a, b"), _said("assistant", "c."), _said("user", "d")
    plain = [[ask], [ask, answer, more], [ask, answer, more, answer, ask]]
    if tools:
        call, calls = _calling("", "look"), _calling("e", "look", "end")
        one, two = _said("tool", "f"), _said("tool", "g")
        plain += [
            [ask, call, one, calls, one, two],
            [ask, calls, one, two, answer, more, call, one],
        ]
    return [[*system, *said] for said in plain for system in ([], [_said("system", "h, i")])]


def _rendered(frame: _Frame, messages: list[dict[str, Any]], tools: bool) -> str:
    """Return what `_written` says, for turns without thoughts."""
    system = messages[0]["role"] == "system"
    text = frame.system + messages[0]["content"] if system else ""
    text, last = text + (frame.told if system else frame.untold)[tools], ""
    for m in messages[system:]:
        if m["role"] == "tool":
            text += frame.results[1 if last == "tool" else 0] + m["content"]
        else:
            before, behind = frame.user if m["role"] == "user" else frame.assistant
            beside = frame.beside if tools and not system and not last else ""
            text += frame.results[2] if last == "tool" else ""
            text += before + m["content"] + _calls_of(frame, m) + beside + behind
        last = m["role"]
    text += frame.results[2] if last == "tool" else ""
    return (text + frame.generation).replace(LIST, frame.tools)


def _calls_of(frame: _Frame, message: dict[str, Any]) -> str:
    calls = [c["function"] for c in message.get("tool_calls", [])]
    name, middle, close = frame.call
    said = [f"{name}{c['name']}{middle}{json.dumps(c['arguments'])}{close}" for c in calls]
    between = frame.after_words if calls and message["content"] else ""
    return between + frame.between_calls.join(said)


# ---------------------------------------------------------------------------- in Go's language


# Ollama finds the tag of a call, and those of thoughts, by the first text in `if .ToolCalls` and
# around `.Thinking`: these stand there as text, all else as strings, and {{- trims line ends only.
GO = """\
{{- $query := -1 }}
{{- range $i, $m := .Messages }}{{ if eq .Role "user" }}{{ $query = $i }}{{ end }}{{ end }}
{{- $last := "" }}
%(head)s
{{- range $i, $m := .Messages }}
{{- if eq .Role "tool" }}%(result)s{{ .Content }}
{{- else }}%(results_end)s
{{- if eq .Role "user" }}%(user_before)s{{ .Content }}%(beside)s%(user_behind)s
{{- else if eq .Role "assistant" }}%(assistant_before)s%(thought)s{{ .Content }}%(calls)s
{{- if gt (len (slice $.Messages $i)) 1 }}%(assistant_behind)s{{ end }}
{{- end }}
{{- end }}
{{- $last = .Role }}
{{- end }}%(results_end)s
{{- if ne $last "assistant" }}%(generation)s{{ end }}"""
HEAD = """\
{{- if .System }}%(system)s{{ .System }}%(told)s{{ else }}%(untold)s{{ end }}"""
HEAD_WITH_TOOLS = """\
{{- $names := "" }}{{ $tools := "" }}{{ $sep := "" }}
{{- range .Tools }}{{ $names = printf "%%s %%s" $names .Function.Name }}
{{- $tools = printf "%%s%%s%%s" $tools $sep (json .) }}{{ $sep = "\\n" }}{{ end }}
{{- if eq $names %(names)s }}{{ $tools = %(tools)s }}{{ end }}
{{- if .System }}%(system)s{{ .System }}
{{- if .Tools }}%(told_tools)s{{ else }}%(told)s{{ end }}
{{- else if .Tools }}%(untold_tools)s
{{- else }}%(untold)s{{ end }}"""
BESIDE = """{{ if and $.Tools (not $.System) (eq $i 0) }}%s{{ end }}"""
RESULT_BEGINS = """{{ if eq $last "tool" }}%s{{ else }}%s{{ end }}"""
RESULTS_END = """{{ if eq $last "tool" }}%s{{ end }}"""
CALLS = """{{ $calls := len .ToolCalls }}
{{- if and .Content (gt $calls 0) }}%(after_words)s{{ end }}
{{- if .ToolCalls }}
{{- range $n, $call := .ToolCalls }}%(name)s{{ .Function.Name }}%(middle)s{{ "{" }}{{ $sep := "" }}
{{- range $key, $value := .Function.Arguments }}{{ $sep }}
{{- json $key }}{{ ": " }}{{ json $value }}{{ $sep = ", " }}{{ end }}{{ "}" }}%(close)s
{{- if gt (len (slice $m.ToolCalls $n)) 1 }}%(between)s{{ end }}
{{- end }}{{ end }}"""


def _written(frame: _Frame, names: list[str]) -> str:
    parts = {"system": _action(frame.system), "generation": _action(frame.generation)}
    parts |= {"told": _action(frame.told[False]), "untold": _action(frame.untold[False])}
    parts["user_before"], parts["user_behind"] = map(_action, frame.user)
    parts["assistant_before"], parts["assistant_behind"] = map(_action, frame.assistant)
    parts |= dict.fromkeys(("thought", "beside", "result", "results_end", "calls"), "")
    parts["head"] = HEAD % parts
    if frame.thought:
        when = ".Thinking" if frame.keeps_thoughts else "and .Thinking (gt $i $query)"
        before, behind = map(_as_text, frame.thought)
        parts["thought"] = f"{{{{ if {when} }}}}{before}{{{{ .Thinking }}}}{behind}{{{{ end }}}}"
    if names:
        parts |= _written_tools(frame, names, parts)
    return GO % parts


def _written_tools(frame: _Frame, names: list[str], parts: dict[str, str]) -> dict[str, str]:
    head = {
        **parts,
        "names": _string("".join(f" {n}" for n in names)),
        "tools": _string(frame.tools),
        "told_tools": _action(frame.told[True]),
        "untold_tools": _action(frame.untold[True]),
    }
    first, between, end = map(_action, frame.results)
    name, middle, close = frame.call
    call = {"name": _as_text(name), "middle": _as_text(middle), "close": _action(close)}
    call |= {"after_words": _action(frame.after_words), "between": _action(frame.between_calls)}
    return {
        "head": HEAD_WITH_TOOLS % head,
        "beside": BESIDE % _action(frame.beside) if frame.beside else "",
        "result": RESULT_BEGINS % (between, first),
        "results_end": RESULTS_END % end,
        "calls": CALLS % call,
    }


def _string(text: str) -> str:
    """Quote a text for Go's source: Ollama's Modelfile drops what cannot be printed."""
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(c if " " <= c <= "~" else f"\\U{ord(c):08x}" for c in escaped)


def _action(text: str) -> str:
    """Return what writes the text, with the tools where LIST is."""
    return "{{ $tools }}".join(f"{{{{ {_string(t)} }}}}" if t else "" for t in text.split(LIST))


def _as_text(text: str) -> str:
    return _action(text) if "{{" in text or text.endswith("{") else text
