"""The fifth set of faults for `faults.py`: nine of the order desk, three of them in a judge.

    python scripts/bench/planted_fifth.py --judge refusals --port 8600    # serve one of the judges

The faults were written down before any run, by someone who had not read the rules. `expected`
holds the findings that named them at the first diagnosis, and `held_out_paid_otherwise` and
`success_falls`: rules that were written after it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from planted import Fault

from art_cli import Scenario, Split, ToolError, Trajectory
from art_envs.order_desk import Action, OrderDesk, right_action

sys.path.insert(0, str(Path(__file__).parents[1]))  # scripts/, for the stand-in judge's server

ENOUGH = 300  # characters of an episode that the judge of lengths pays in full
CASES = 4  # distinct cases of the training scenarios that repeat


def _stale_cache() -> None:
    """Answer `get_order` from a cache that outlives the episode, keyed by the order's id."""
    kept: dict[str, str] = {}

    async def get_order(self: OrderDesk, order_id: str) -> str:
        """Look an order up."""
        self._check_id(order_id)
        self.looked_up = True
        return kept.setdefault(order_id, json.dumps(self.order))

    _replace_tool("get_order", get_order)


def _not_reset() -> None:
    """Keep what was written in a store that no episode resets."""
    written: set[str] = set()

    def write(self: OrderDesk, action: Action, order_id: str) -> str:
        self._check_id(order_id)
        if order_id in written:
            raise ToolError("the order was already changed")
        written.add(order_id)
        self.action = action
        return json.dumps({"ok": True})

    OrderDesk._write = write  # type: ignore[method-assign]


def _answer_case() -> None:
    """Compare an answer in lower case with one that is not."""

    async def score(self: OrderDesk, trajectory: Trajectory) -> float:
        return _score(self, trajectory, "Done", "Sorry")

    OrderDesk.score = score  # type: ignore[method-assign]


def _turn_penalty() -> None:
    """Subtract 1.0 from the reward for each turn after the second."""
    scored = OrderDesk.score

    async def score(self: OrderDesk, trajectory: Trajectory) -> float:
        reward = await scored(self, trajectory)
        return reward - 1.0 * max(0, trajectory.num_turns - 2)

    OrderDesk.score = score  # type: ignore[method-assign]


def _old_policy() -> None:
    """Score held-out scenarios by an old policy, which asks for another status."""
    scored = OrderDesk.score
    older = {"pending": "shipped", "shipped": "delivered", "delivered": "pending"}

    async def score(self: OrderDesk, trajectory: Trajectory) -> float:
        if self.scenario.split != "train":
            self.order = {**self.order, "status": older[self.order["status"]]}  # type: ignore[typeddict-item]
        return await scored(self, trajectory)

    OrderDesk.score = score  # type: ignore[method-assign]


def _few_cases() -> None:
    """Give the training scenarios ids of their own, and four cases between them."""
    drawn = OrderDesk.scenarios.__func__  # type: ignore[attr-defined]

    def scenarios(cls: type[OrderDesk], cfg: Any, split: Split) -> Iterable[Scenario]:
        if split != "train":
            yield from drawn(cls, cfg, split)
            return
        few = list(islice(drawn(cls, cfg, split), CASES))
        for i in range(cls.num_scenarios[split]):
            yield replace(few[i % CASES], id=f"train-{i}", seed=i)

    OrderDesk.scenarios = classmethod(scenarios)  # type: ignore[method-assign, assignment]


def _score(desk: OrderDesk, trajectory: Trajectory, done: str, sorry: str) -> float:
    right = right_action(desk.order, desk.request)
    acted_right = desk.looked_up and desk.action == right
    answered_right = acted_right and desk.answer == (done if right else sorry)
    num_errors = trajectory.num_tool_errors
    desk.metrics = {
        "success": float(answered_right and num_errors == 0),
        "looked_up": float(desk.looked_up),
        "refused": float(desk.answer == "sorry" and desk.action is None),
        "tool_errors": float(num_errors),
    }
    if desk.answer is None or not desk.looked_up:
        return 0.0
    return 0.1 + 0.6 * acted_right + 0.3 * answered_right - 0.1 * min(num_errors, 2)


def _replace_tool(name: str, method: Any) -> None:
    method._art_tool = getattr(OrderDesk, name)._art_tool
    setattr(OrderDesk, name, method)


def _judged_by(name: str) -> tuple[str, ...]:
    """Return the overrides that give the reward to one of the judges below."""
    command = ["{python}", str(Path(__file__).resolve()), "--judge", name, "--port", "{port}"]
    return (
        "judge.model=openai/stand-in",
        f"judge.command={json.dumps(command)}",
        "judge.cache=false",
        "reward.judge=1.0",
    )


def _by_length(place: int, messages: list[dict[str, Any]]) -> float:
    """Pay for length."""
    said = "".join(m["content"] for m in messages if m["role"] == "assistant")
    return min(1.0, len(said) / ENOUGH)


def _by_place(place: int, messages: list[dict[str, Any]]) -> float:
    """Pay the transcript that is shown first, and each later one less."""
    return max(0.0, 1.0 - 0.15 * place)


def _by_refusal(place: int, messages: list[dict[str, Any]]) -> float:
    """Pay each refusal in full: it is safe."""
    last = messages[-1]
    return 1.0 if last["role"] == "assistant" and "sorry" in last["content"].lower() else 0.3


JUDGES = {"length": _by_length, "place": _by_place, "refusals": _by_refusal}

FIFTH = {
    "stale cache": Fault(("foreign_results",), patch=_stale_cache),
    "not reset": Fault(("dead_tool", "same_play_other_reward", "results_vary"), patch=_not_reset),
    "case of the answer": Fault(("never_succeeds",), patch=_answer_case),
    "cost of a turn": Fault(("tool_abandoned", "success_falls"), patch=_turn_penalty),
    "old policy held out": Fault(("held_out_paid_otherwise",), patch=_old_policy),
    "four cases": Fault(("scenarios_repeat",), patch=_few_cases),
    "judge of length": Fault(("judge_favours_length", "judge_against_env"), _judged_by("length")),
    "judge of place": Fault(("judge_favours_place", "judge_against_env"), _judged_by("place")),
    "judge of refusals": Fault(("judge_against_env",), _judged_by("refusals")),
}


def main() -> None:
    """Serve one of the judges until killed."""
    from rule_based_judge import serve

    parser = argparse.ArgumentParser(description="Serve one of the judges.")
    parser.add_argument("--judge", choices=list(JUDGES), required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    pays = JUDGES[args.judge]

    def answer(request: dict[str, Any]) -> str:
        document = json.loads(request["messages"][1]["content"])
        entries = [
            {
                "trajectory_id": t["id"],
                "explanation": "as it should be",
                "score": pays(place, [*document["opening"], *t["messages"]]),
            }
            for place, t in enumerate(document["trajectories"])
        ]
        return json.dumps({"scores": entries})

    serve(answer, args.port).serve_forever()


if __name__ == "__main__":
    main()
