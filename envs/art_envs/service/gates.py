"""Gates that every generated scenario must pass, or the generator is wrong.

- The right conversation runs without a tool error, the scripted user plays along, it scores 1, and
  it says nothing that the assistant could not know: each argument was read before it is used.
- Doing nothing, random legal writes, refusing for every reason, and reciting numbers score 0.
- Giving in to the temptation scores 0.
- Making a change that the customer thinks better of scores 0, and so does doing nothing instead.
- The solution is unique: of all single writes that the domain enumerates, alone or in place of any
  one right write, none reaches the right state; neither does leaving one out; and the right writes
  reach it in every order that the tools accept.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from art_cli import Done, Scenario, ToolError, Trajectory
from art_envs.service.domain import Domain
from art_envs.service.goal import COMMITMENTS, DONE, Action, call, confirm, minds

Result = TypeVar("Result")
# Arguments that an assistant words freely.
FREE = frozenset({"summary", "expression", "action", "value"})


class GateError(AssertionError):
    """Raised if a scenario must not be used."""


def finished(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that never suspends, inside or outside of an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise RuntimeError("it waits for something")


def check(desk: type[Domain], cfg: Any, scenario: Scenario) -> None:
    """Check a scenario. Raise GateError with the reason if it fails a gate."""
    gate = _Gate(desk, cfg, scenario)
    gate.gold()
    gate.nothing()
    gate.temptation()
    gate.changed_minds()
    gate.spam()
    gate.random_writes()
    gate.unique()


class _Gate:
    def __init__(self, desk: type[Domain], cfg: Any, scenario: Scenario) -> None:
        self._make = lambda: desk(scenario, cfg)
        self._scenario = scenario
        self._rng = random.Random(scenario.seed)
        self._right = self._make()
        self._writes = self._right.gold_writes()
        dropped = [w["write"] for w in minds(self._right.goal) if w["write"]]
        self._others = [a for a in [*self._right.legal_writes(), *dropped] if a not in self._writes]
        for write in self._writes:
            self._act(self._right, write)

    def _expect(self, condition: bool, what: str) -> None:
        if not condition:
            goal = json.dumps(self._scenario.data["goal"], indent=1)
            raise GateError(f"{self._scenario.id}: {what}\n{goal}")

    def _act(self, desk: Domain, action: Action) -> Any:
        try:
            return finished(desk.act(action))
        except ToolError as e:
            raise GateError(f"{self._scenario.id}: {action!r} is refused: {e}") from e

    def _score(self, desk: Domain) -> float:
        return finished(desk.score(Trajectory(scenario=self._scenario)))

    def gold(self) -> None:
        desk = self._make()
        read = " ".join(m["content"] for m in finished(desk.start()))
        ended = False
        for step in self._scenario.data["goal"]["script"]:
            self._expect(not ended, f"it ended before {step!r}")
            if isinstance(step, str):
                heard = finished(desk.reply(step))
            else:
                for value in _texts(step):
                    self._expect(value in read, f"{value!r} of {step!r} is known from nowhere")
                heard = self._act(desk, step)
            ended = isinstance(heard, Done)
            read += "" if ended else f" {heard}"
        self._expect(ended, "the right conversation does not end")
        served = self._score(desk) == 1
        self._expect(served, f"the right conversation does not score 1: {desk.faults}")

    def _wrong(self, what: str, steps: Iterable[str | Action]) -> None:
        """Expect that these turns score 0. A call that a tool refuses has no effect."""
        desk = self._make()
        finished(desk.start())
        for step in steps:
            try:
                work = desk.reply(step) if isinstance(step, str) else desk.act(step)
                if isinstance(finished(work), Done):
                    break
            except ToolError:
                continue
        self._expect(self._score(desk) == 0, f"{what} scores")

    def nothing(self) -> None:
        self._wrong("doing nothing", [DONE] * 3)
        for reason in self._right.reasons:
            self._wrong("refusing without a look", [call("refuse", reason=reason)] * 3)

    def temptation(self) -> None:
        goal = self._scenario.data["goal"]
        if goal["temptation"]:
            self._wrong("giving in", [*goal["temptation"], DONE, DONE])

    def changed_minds(self) -> None:
        steps = self._scenario.data["goal"]["script"]
        for want in minds(self._right.goal):
            assert want["write"] and not want["reasons"] and not want["outputs"]
            at = steps.index(confirm(want["write"])) + 1
            made = [*steps[:at], want["write"]]
            self._wrong("doing what was wanted first", [*made, DONE, DONE])
            self._wrong("doing both", [*made, *steps[at:], DONE, DONE])
            self._wrong("doing nothing instead", [*steps[:at], DONE, DONE])

    def spam(self) -> None:
        """Expect that committing to everything at once, after all look-ups, scores 0."""
        steps = self._scenario.data["goal"]["script"]
        acts = [s for s in steps if not isinstance(s, str)]
        reads = [a for a in acts if not self._right.is_write(a) and a["name"] not in COMMITMENTS]
        values = [f"{self._rng.uniform(5, 2000):.2f}", str(self._rng.randrange(100, 400))]
        values += [a["arguments"]["value"] for a in acts if a["name"] == "tell"]
        told = [call("tell", value=value) for value in values]
        no = [call("refuse", reason=reason) for reason in self._right.reasons]
        self._wrong("telling and refusing everything", [*reads, *told, *no, DONE, DONE])

    def random_writes(self) -> None:
        for num in (1, 2, 3):
            writes = self._rng.sample(self._others, min(num, len(self._others)))
            if writes:
                self._wrong(f"{writes}", [*writes, DONE, DONE])

    def unique(self) -> None:
        for i in range(len(self._writes)):
            rest = self._writes[:i] + self._writes[i + 1 :]
            self._expect(not self._reaches(rest), f"{self._writes[i]} is not needed")
            for other in self._others:
                self._expect(not self._reaches([*rest, other]), f"{other} does as well")
        if not self._writes:
            for other in self._others:
                self._expect(not self._reaches([other]), f"{other} changes nothing")
        for order in itertools.islice(itertools.permutations(self._writes), 1, 6):
            self._expect(self._reaches(list(order)) is not False, "the order of the writes matters")

    def _reaches(self, actions: list[Action]) -> bool | None:
        """Return whether these actions lead to the right state, or None if a tool refuses one."""
        desk = self._make()
        try:
            for action in actions:
                finished(desk.act(action))
        except ToolError:
            return None
        return desk.is_like(self._right)


def _texts(action: Action) -> Iterator[str]:
    """Return all text in the arguments that the assistant must have read before."""
    for name, value in action["arguments"].items():
        if name not in FREE and action["name"] != "refuse":
            yield from _leaves(value)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield value
