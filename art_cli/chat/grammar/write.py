"""The grammar of a turn: thinking, then an answer that matches a schema, or tool calls.

It covers the whole turn including its end, so that every engine samples from the same distribution.
The constraint begins after the thinking, and the turn can end only where the answer is complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from art_cli.chat.grammar.calls import CallGrammar
from art_cli.chat.grammar.schema import checked_schema
from art_cli.chat.grammar.terminals import Terminals, any_of
from art_cli.chat.render import Renderer
from art_cli.chat.tool_formats.arguments import Schema, kinds_of
from art_cli.errors import ConstraintError

HEAD = "%llguidance {}\n"  # selects llguidance's dialect of Lark
GAP = r"/\n{0,3}/"  # around the thinking
HARMONY = (  # the parts of a gpt-oss turn around an answer
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant",
    "<|channel|>final<|message|>",
)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the parts of a turn around an answer, for one model."""

    renderer: Renderer
    terminals: Terminals

    def end(self, *ends: str) -> str:
        """Return a terminal that matches any of these ends of a turn."""
        ids = {self.renderer.encode(end)[0] for end in ends if end}
        return any_of(ids or self.renderer.stop_ids)

    def thinking(self, prompt: str) -> tuple[str, str]:
        """Return the grammar before an answer to this prompt, and the rule that it needs."""
        capabilities = self.renderer.capabilities
        is_harmony = capabilities.output_format.format.turn is not None
        opening, closing = HARMONY[:2] if is_harmony else capabilities.output_format.tags
        begun = prompt.rstrip().endswith(opening)
        known = is_harmony or capabilities.knows_thinking or self.terminals.is_special(opening)
        if not begun and (not known or prompt.rstrip().endswith(closing)):
            return "", ""
        last = self.terminals.literal(closing)
        if last.startswith("<["):
            rule = f"thought: /(?s:.*)/ {last} {GAP}\n"
        else:
            rule = f"thought: closed {GAP}\nclosed[suffix={last}]: /(?s:.*)/\n"
        return ("thought" if begun else f"{GAP} ({self.terminals.literal(opening)} thought)?"), rule

    def calls(self, tools: dict[str, Schema], parallel: bool) -> CallGrammar:
        """Return the grammar of calls of these tools."""
        stop_ids = frozenset(self.renderer.stop_ids)
        named = self.renderer.names.schemas(tools)
        return CallGrammar(self.renderer.capabilities, self.terminals, stop_ids, named, parallel)


def answer_grammar(
    renderer: Renderer,
    specials: dict[str, int],
    prompt: str,
    schema: object,
    tools: dict[str, Schema],
    *,
    parallel: bool = True,
) -> str:
    """Return the grammar of a turn after a prompt, whose answer matches a schema.

    Instead of answering, the turn may call one of `tools`, which maps the name of a tool to the
    schema of its parameters. `specials` is that of `Grammars`. Raises ConstraintError.
    """
    write, output_format = (
        _Writer(renderer, Terminals(specials)),
        renderer.capabilities.output_format,
    )
    thought, rules = write.thinking(prompt)
    before = thought
    if output_format.format.turn is not None:
        before += f" {write.terminals.literal(HARMONY[2])}"
    ends = renderer.end_of_turn, renderer.capabilities.end_of_calls
    rules += f"answer: %json {checked_schema(schema)}\n"
    if not tools:
        return f"{HEAD}start: {before} answer {write.end(ends[0])}\n{rules}"
    if output_format.format.opening == "[" and "array" in kinds_of(schema, {}):
        raise ConstraintError("an answer that is a list looks like a call in this model's format")
    calls = write.calls(tools, parallel)
    start = f"{before} answer {write.end(ends[0])} | {thought} calls {write.end(*ends)}"
    whole = calls.whole()
    return f"{HEAD}start: {start}\n{rules}calls: {whole}\n{calls.written_rules()}"


def schema_grammar(checked: str) -> str:
    """Return the grammar of JSON that matches a checked schema, without the rest of a turn."""
    return f"{HEAD}start: answer\nanswer: %json {checked}\n"


def call_grammar(
    renderer: Renderer,
    specials: dict[str, int],
    tools: dict[str, Schema],
    name: str | None,
    *,
    parallel: bool = True,
) -> str:
    """Return the grammar that follows the opening of a call to the tool `name`, or to any.

    Raises ConstraintError.
    """
    write = _Writer(renderer, Terminals(specials))
    calls = write.calls(tools, parallel)
    end = write.end(renderer.capabilities.end_of_calls, renderer.end_of_turn)
    behind = calls.behind(name and renderer.names.alias(name))
    return f"{HEAD}start: ({behind}) {end}\n{calls.written_rules()}"
