"""The grammar of a turn: what a model thinks, then an answer to a schema, or calls of tools.

It is of the whole turn, its end included, so that every engine samples from the same: the
constraint begins where the thinking ends, and the end of the turn is allowed where the answer may
end, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from art_cli.models.dialect import CALL
from art_cli.models.grammar.schema import checked_schema
from art_cli.models.render import Renderer
from art_cli.models.tool_formats.format import NAME

HEAD = "%llguidance {}\n"  # so begins what is in the library's own dialect of Lark
GAP = r"/\n{0,3}/"  # around the thinking
HARMONY = (  # what stands around an answer of gpt-oss
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant",
    "<|channel|>final<|message|>",
)
ARGUMENTS = re.compile(r'\{\s*"zkeyz":\s*"zvaluez",\s*"znumz":\s*17\s*\}')  # those of CALL


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes what stands around an answer, in the words of one model."""

    renderer: Renderer
    specials: dict[str, int]

    def literal(self, text: str) -> str:
        """Return a text as terminals: special tokens are no text to the library."""
        cuts = "|".join(map(re.escape, sorted(self.specials, key=len, reverse=True)))
        parts = re.split(f"({cuts})", text) if cuts else [text]
        known = self.specials
        return " ".join(
            _any([known[part]]) if part in known else json.dumps(part, ensure_ascii=False)
            for part in parts
            if part
        )

    def end(self, *ends: str) -> str:
        """Return what stands for any of these ends of a turn."""
        ids = {self.renderer.encode(end)[0] for end in ends if end}
        return _any(ids or self.renderer.stop_ids)

    def thinking(self, prompt: str) -> tuple[str, str]:
        """Return what comes before an answer behind this prompt, and the rule that it needs."""
        dialect = self.renderer.dialect
        is_harmony = dialect.speech.format.turn is not None
        opening, closing = HARMONY[:2] if is_harmony else dialect.speech.tags
        begun = prompt.rstrip().endswith(opening)
        known = is_harmony or dialect.knows_thinking or opening in self.specials
        if not begun and (not known or prompt.rstrip().endswith(closing)):
            return "", ""
        last = self.literal(closing)
        if last.startswith("<["):
            rule = f"thought: /(?s:.*)/ {last} {GAP}\n"
        else:
            rule = f"thought: closed {GAP}\nclosed[suffix={last}]: /(?s:.*)/\n"
        return ("thought" if begun else f"{GAP} ({self.literal(opening)} thought)?"), rule

    def calls(self, tools: list[str]) -> str:
        """Return how a turn goes on that calls one of these tools: free behind its name."""
        dialect = self.renderer.dialect
        written = dialect.written_call() or ""
        before = {dialect.speech.format.begin.partition(NAME)[0]}
        if CALL["name"] in written:
            own = written.partition(CALL["name"])[0]
            before |= {own, own.lstrip("\n")}
        begins = " | ".join(self.literal(f"{b}{tool}") for tool in tools for b in sorted(before))
        told = written + dialect.speech.markers
        kept = [id for text, id in self.specials.items() if text in told]
        rest = f"TEXT | {_any(kept)}" if kept else "TEXT"
        return f"call: ({begins}) ({rest})*\nTEXT: /(?s:.+)/\n"


def _any(ids: Iterable[int]) -> str:
    return f"<[{','.join(map(str, sorted(ids)))}]>"


def answer_grammar(
    renderer: Renderer, specials: dict[str, int], prompt: str, schema: object, tools: list[str]
) -> str:
    """Return the grammar of a turn behind a prompt whose answer meets a schema.

    It may call one of the `tools` instead. `specials` are those of Grammars. Raises
    ConstraintError.
    """
    checked = checked_schema(schema)
    write, speech = _Writer(renderer, specials), renderer.dialect.speech
    thought, rules = write.thinking(prompt)
    before = thought
    if speech.format.turn is not None:
        before += f" {write.literal(HARMONY[2])}"
    ends = renderer.end_of_turn, renderer.dialect.end_of_calls
    rules += f"answer: %json {checked}\n"
    if not tools:
        return f"{HEAD}start: {before} answer {write.end(ends[0])}\n{rules}"
    start = f"{before} answer {write.end(ends[0])} | {thought} call {write.end(*ends)}"
    return f"{HEAD}start: {start}\n{rules}{write.calls(tools)}"


def schema_grammar(checked: str) -> str:
    """Return the grammar of what meets a schema that has been checked, and of nothing around it."""
    return f"{HEAD}start: answer\nanswer: %json {checked}\n"


def call_grammar(renderer: Renderer, specials: dict[str, int], schema: object) -> str | None:
    """Return the grammar of what goes on behind the opening of a call, by its parameters' schema.

    None: the model's format does not write arguments as JSON. Raises ConstraintError.
    """
    written = renderer.dialect.written_call()
    found = ARGUMENTS.search(written or "")
    if found is None or written is None:
        return None
    write = _Writer(renderer, specials)
    closing = write.literal(written[found.end() :].rstrip())
    end = write.end(renderer.dialect.end_of_calls, renderer.end_of_turn)
    return f"{HEAD}start: arguments {closing} {end}\narguments: %json {checked_schema(schema)}\n"
