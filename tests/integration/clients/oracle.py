"""A stand-in for the policy that plays perfectly: it answers with what the env's `gold()` says.

It reads token ids and answers with token ids, as any engine does. What comes next follows from what
the env has executed so far, and not from the history that it is shown: so it plays on behind a
summary, in a sub-agent, or beside a planner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from art_cli.chat.grammar.grammars import Grammars
from art_cli.chat.render import Renderer
from art_cli.chat.turns import parse_tool_calls
from art_cli.types import Completion, Trajectory

MESSAGE = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>|\Z)", re.S)
TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.S)
TOOL = re.compile(r"^(\w+) ([\w ]*):", re.M)  # descriptions have lines of their own
PROPERTY = re.compile(r'"properties": ?\{"(\w+)"')
CALL = '<tool_call>{{"name": {name}, "arguments": {arguments}}}</tool_call>'

# What programs ask besides playing, by words of their instructions, and what they are told.
ASIDE = {
    "Is the answer polite": "yes",
    "Give a title": "An order",
    "Make a plan": "First look the order up.",
    "Summarize": "The customer has said what they want; go on where you were.",
}
FINAL = ("final_result", "final_answer", "answer")  # tools that say the answer
HAND_OVER = ("ask_specialist", "transfer_to_desk")  # tools that give the task to another agent


@dataclass
class Asked:
    """One call that was answered."""

    ids: list[int]
    completion: Completion


@dataclass
class Oracle:
    """Implements Engine."""

    renderer: Renderer
    grammars: Grammars  # of which it is asked whether they can be used
    gold: list[str] = field(default_factory=list)  # the turns of a perfect assistant
    parallel: bool = False  # several reads in one turn
    trajectory: Trajectory = field(init=False)  # of its episode
    asked: list[Asked] = field(default_factory=list)
    handed_over: bool = False
    policy_version: int = 3
    cached_tokens: int = 8

    def open(self, seed: int, *, awaited: bool = True) -> _Session:
        return _Session(self)

    @property
    def executed(self) -> int:
        """Steps of the gold that the env has done."""
        return sum(not step.is_error for step in self.trajectory.steps)

    def say(self, prompt: str, grammar: str | None) -> str:
        """Return the next turn."""
        first = MESSAGE.search(prompt)
        for words, answer in ASIDE.items():
            if first and words in first[2]:
                return _in_schema(answer, grammar) if grammar else answer
        shown = TOOLS.search(prompt)
        tools = dict(TOOL.findall(shown[1])) if shown else {}
        hand_over = next((name for name in HAND_OVER if name in tools), None)
        if hand_over and not self.handed_over:
            self.handed_over = True
            arguments = tools[hand_over].split()[:1]
            return _call(hand_over, dict.fromkeys(arguments, "the customer's request"))
        if self.executed >= len(self.gold):
            return self._words(self.gold[-1], tools, grammar)
        step = self.gold[self.executed]
        if not _calls(step):
            return self._words(step, tools, grammar)
        return "\n".join(self._together()) if self.parallel else _as_shown(step, tools, prompt)

    def _words(self, text: str, tools: dict[str, str], grammar: str | None) -> str:
        last = self.executed >= len(self.gold) - 1
        final = next((t for t in tools if t.startswith(FINAL)), None) if last else None
        if final:  # a grammar, too, allows its call
            return _call(final, {tools[final].split()[0]: text})
        if grammar:
            return _in_schema(text, grammar)
        return _call("reply", {"text": text}) if "reply" in tools else text

    def _together(self) -> list[str]:
        """The next step, and those behind it that read only."""
        steps = [self.gold[self.executed]]
        if not _reads(steps[0]):
            return steps
        for step in self.gold[self.executed + 1 :]:
            if not _reads(step):
                break
            steps.append(step)
        return steps


@dataclass
class Script(Oracle):
    """Says the turns of `gold` in their order, for an agent that does not call the env."""

    def say(self, prompt: str, grammar: str | None) -> str:
        return self.gold[len(self.asked)]


@dataclass
class _Session:
    oracle: Oracle

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        grammar: str | None = None,
        top_logprobs: int = 0,
    ) -> Completion:
        renderer = self.oracle.renderer
        prompt = renderer._tokenizer.decode(ids, skip_special_tokens=False)
        said = list(renderer.encode(_behind(str(prompt), self.oracle.say(str(prompt), grammar))))
        said += renderer.encode(renderer.end_of_turn)
        kept = said[:max_tokens]
        completion = Completion(
            token_ids=kept,
            # No two alike, so that none can stand in another's place.
            logprobs=[-0.001 * (len(self.oracle.asked) * 500 + i + 1) for i in range(len(kept))],
            finish_reason="stop" if len(kept) == len(said) else "length",
            policy_version=3,
        )
        self.oracle.asked.append(Asked(list(ids), completion))
        return completion

    def close(self) -> None:
        pass


def _behind(prompt: str, turn: str) -> str:
    """What is left to say of a turn where a call had to be made, and is begun in the prompt."""
    _, is_turn, begun = prompt.rpartition("<|im_start|>assistant\n")
    if not is_turn or not begun:
        return turn
    call = turn[turn.index("<tool_call>") :]
    assert call.startswith(begun), (begun, turn)
    return call.removeprefix(begun)


def _as_shown(step: str, tools: dict[str, str], prompt: str) -> str:
    """The call that leads to a call of the env's, by the name that a client gave its tool."""
    [call] = _calls(step)
    name, arguments = f"mcp__env__{call['name']}", call["arguments"]
    if name in tools or f'"name": "{name}", "description"' in prompt:
        return _call(name, arguments)
    if "functions__exec" in tools:  # Codex runs JavaScript that calls tools
        code = f"text(await tools.{name}({json.dumps(arguments)}))"
        return _call("functions__exec", {"input": code})
    if "ToolSearch" in tools:  # Claude Code shows tools that were looked for
        return _call("ToolSearch", {"query": f"select:{name}"})
    if "tool_call" in tools:  # Qwen Code calls tools that it does not show
        return _call("tool_call", {"name": name, "arguments": arguments})
    shown = next((each for each in tools if each.endswith(f"_{call['name']}")), None)
    return _call(shown, arguments) if shown else step


def _calls(step: str) -> list[Any]:
    return parse_tool_calls(step)


def _reads(step: str) -> bool:
    return step.startswith('<tool_call>{"name": "get_')


def _call(name: str, arguments: dict[str, Any]) -> str:
    return CALL.format(name=json.dumps(name), arguments=json.dumps(arguments))


def _in_schema(text: str, grammar: str) -> str:
    """The words as the object that a grammar asks for, whose one property they are."""
    found = PROPERTY.search(grammar)
    assert found, grammar
    return json.dumps({found[1]: text})
