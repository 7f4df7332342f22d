"""The fourth set that `faults.py` plants: invented by someone who had not seen the rules.

`expected` is what the rules say since they were tuned on it. The two judges are scripts that a
patch writes to the temporary folder.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planted import Fault, _desk, _score

SCRIPTS = Path(__file__).resolve().parents[1]  # scripts/, where rule_based_judge.py is
JUDGE = Path(tempfile.gettempdir()) / "art-planted-judge-{}.py"


def _tool(name: str, new: Callable[..., Any]) -> None:
    """Put another function in the place of a tool of the desk, with its schema."""
    desk = _desk()
    setattr(desk, name, functools.wraps(desk.__dict__[name])(new))


def _stale_cache() -> None:
    """Keep what `get_order` shows by the order's number alone: of 90 numbers, the first order."""
    right, cache = _desk().get_order, dict[str, str]()

    async def get_order(self: Any, order_id: str) -> str:
        return cache.setdefault(order_id, await right(self, order_id))

    _tool("get_order", get_order)


def _shared_history() -> None:
    """Open with the last four requests of all episodes: a history that is the class's own."""
    desk = _desk()
    right, history = desk.start, deque[str](maxlen=4)

    async def start(self: Any) -> str:
        history.append(await right(self))
        return "\n".join(history)

    desk.start = start


def _copied_tool() -> None:
    """Let return_order cancel: it was copied and not adapted."""

    async def return_order(self: Any, order_id: str) -> str:
        return self._write("cancel", order_id)

    _tool("return_order", return_order)


def _crash_on_success(env: Any, trajectory: Any, reward: float) -> float:
    if env.metrics["success"] and env.action:  # the branch that nobody has tried
        return reward + {}["bonus"]
    return reward


def _batch_baseline() -> None:
    """Take the mean of the batch for that of the group."""
    from art_cli import loop

    right = loop.set_advantages

    def wrong(groups: list[Any], kind: str) -> None:
        right(groups, kind)
        mean = statistics.fmean(r for g in groups for r in g.rewards)
        for group in groups:
            for t in group.valid:
                t.advantage = t.reward - mean

    loop.set_advantages = wrong


def _last_turn_only() -> None:
    """Train on the last turn of each episode alone."""
    from art_cli.rollout import policy_agent

    right = policy_agent.record_sampled

    def wrong(trajectory: Any, sequences: Any, completions: Any, *, cut: bool) -> None:
        right(trajectory, sequences, completions, cut=cut)
        for s in trajectory.sequences:
            last = s.begins[-1]
            s.mask[:last] = [0] * last
            s.engine_logprobs[:last] = [0.0] * last

    policy_agent.record_sampled = wrong


def _judge(name: str, body: str) -> tuple[tuple[str, ...], Callable[[], None]]:
    """Return the settings and the patch of a stand-in that answers by `judge(request)`."""
    file = Path(str(JUDGE).format(name))
    text = f"""\
import argparse, json, sys
sys.path.insert(0, {str(SCRIPTS)!r})
import rule_based_judge as stand_in
{body}
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
stand_in.serve(judge, parser.parse_args().port).serve_forever()
"""
    overrides = (
        "judge.use=ruler",
        "judge.model=openai/rule-based-stand-in",
        f'judge.command=["{{python}}","{file}","--port","{{port}}"]',
        "judge.cache=false",
        "reward={ruler: 1.0}",
    )

    def patch() -> None:
        file.write_text(text)

    return overrides, patch


UPSIDE_DOWN = _judge(
    "upside-down",
    """
def judge(request):
    answer = json.loads(stand_in.judge(request))
    for entry in answer["scores"]:
        entry["score"] = round(1.0 - entry["score"], 3)
    return json.dumps(answer)
""",
)
CUT_OFF = _judge(
    "cut-off",
    """
whole = stand_in.completion

def judge(request):
    text = stand_in.judge(request)
    told = sum(len(e["explanation"]) for e in json.loads(text)["scores"])
    return text if told <= 95 else text[: int(0.7 * len(text))]

def completion(request, text):
    body = whole(request, text)
    if not text.endswith("}"):
        body["choices"][0]["finish_reason"] = "length"
    return body

stand_in.completion = completion
""",
)

FOURTH: dict[str, Fault] = {
    "a lookup is cached by number": Fault(("foreign_results",), patch=_stale_cache),
    "openings hold other requests": Fault(("siblings_differ_at_start",), patch=_shared_history),
    "a tool does another's work": Fault(("kind_never_succeeds",), patch=_copied_tool),
    "a turn costs as much as the goal": Fault(
        ("capped_reward", "against_success"),
        patch=_score(lambda env, t, reward: reward - 1.0 * t.num_turns),
    ),
    "score raises where it went well": Fault(("env_fails",), patch=_score(_crash_on_success)),
    "kl_coef of 3": Fault(("held_by_penalty",), ("train.kl_coef=3",)),
    "rollouts twelve updates old": Fault(
        ("stale_rollouts",), ("train.max_staleness=12", "engine.deterministic=false")
    ),
    "only the last turn is trained": Fault(("untrained_turns",), patch=_last_turn_only),
    "baseline of the batch": Fault(("other_baseline",), patch=_batch_baseline),
    "judge upside down": Fault(("judge_against_env",), *UPSIDE_DOWN),
    "judge cut off": Fault(("judge_fails",), *CUT_OFF),
}
