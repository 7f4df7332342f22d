"""The grammar of a turn: what a model thinks, then an answer to a schema, or calls of tools.

It is of the whole turn, its end included, so that every engine samples from the same: the
constraint begins where the thinking ends, and the end of the turn is allowed where the answer may
end, and nowhere else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from art_cli.models.grammar.schema import checked_schema
from art_cli.models.render import Renderer

HEAD = "%llguidance {}\n"  # so begins what is in the library's own dialect of Lark
GAP = r"/\n{0,2}/"  # between the thinking and the answer
HARMONY = (  # what stands around an answer of gpt-oss
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant",
    "<|channel|>final<|message|>",
)
ARGUMENTS = re.compile(r'\{\s*"zkeyz":\s*"zvaluez",\s*"znumz":\s*17\s*\}')


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes what stands around an answer, in the words of one model."""

    renderer: Renderer

    def literal(self, text: str) -> str:
        """Return a text as terminals: special tokens are no text to the library."""
        specials = self.renderer.specials
        cuts = "|".join(map(re.escape, sorted(specials, key=len, reverse=True)))
        parts = re.split(f"({cuts})", text) if cuts else [text]
        return " ".join(
            self.token([part]) if part in specials else json.dumps(part, ensure_ascii=False)
            for part in parts
            if part
        )

    def token(self, texts: list[str]) -> str:
        """Return what stands for any of these special tokens."""
        ids = sorted({self.renderer.encode(text)[0] for text in texts})
        return f"<[{','.join(map(str, ids))}]>"

    def end(self, *ends: str) -> str:
        """Return what stands for any of these ends of a turn."""
        ids = {self.renderer.encode(end)[0] for end in ends if end}
        ids = ids or set(self.renderer.stop_ids)
        return f"<[{','.join(map(str, sorted(ids)))}]>"

    def thinking(self, prompt: str) -> tuple[str, str]:
        """Return what comes before an answer behind this prompt, and the rule that it needs."""
        dialect = self.renderer.dialect
        is_harmony = dialect.speech.format.turn is not None
        opening, closing = HARMONY[:2] if is_harmony else dialect.speech.tags
        begun = prompt.rstrip().endswith(opening)
        known = is_harmony or dialect.knows_thinking or opening in self.renderer.specials
        if not begun and (not known or prompt.rstrip().endswith(closing)):
            return "", ""
        first, _, _ = self.literal(closing).partition(" ")
        if first.startswith("<["):
            rule = f"thought: /(?s:.*)/ {self.literal(closing)} {GAP}\n"
        else:
            rule = f"thought: closed {GAP}\nclosed[suffix={first}]: /(?s:.*)/\n"
        return ("thought" if begun else f"({self.literal(opening)} thought)?"), rule


def answer_grammar(renderer: Renderer, prompt: str, schema: object, tools: list[str]) -> str:
    """Return the grammar of a turn behind a prompt whose answer meets a schema.

    It may call one of the `tools` instead. Raises ConstraintError.
    """
    checked = checked_schema(schema)
    write, speech = _Writer(renderer), renderer.dialect.speech
    before, rules = write.thinking(prompt)
    if speech.format.turn is not None:
        before += f" {write.literal(HARMONY[2])}"
    ends = renderer.end_of_turn, renderer.dialect.end_of_calls
    rules += f"answer: %json {checked}\n"
    if not tools:
        return f"{HEAD}start: {before} answer {write.end(ends[0])}\n{rules}"
    kept = [s for s in renderer.specials if s in speech.markers]
    rest = f"TEXT | {write.token(kept)}" if kept else "TEXT"
    calls = " | ".join(write.literal(speech.opening(name)) for name in tools)
    thought = write.thinking(prompt)[0]
    return (
        f"{HEAD}start: {before} answer {write.end(ends[0])} | {thought} call {write.end(*ends)}\n"
        f"call: ({calls}) ({rest})*\nTEXT: /(?s:.+)/\n{rules}"
    )


def call_grammar(renderer: Renderer, schema: object) -> str | None:
    """Return the grammar of what goes on behind the opening of a call, by its parameters' schema.

    None: the model's format does not write arguments as JSON. Raises ConstraintError.
    """
    written = renderer.dialect.written_call()
    found = ARGUMENTS.search(written or "")
    if found is None or written is None:
        return None
    write = _Writer(renderer)
    closing = write.literal(written[found.end() :].rstrip())
    end = write.end(renderer.dialect.end_of_calls, renderer.end_of_turn)
    return f"{HEAD}start: arguments {closing} {end}\narguments: %json {checked_schema(schema)}\n"
