"""The faults that `faults.py` plants: of the env, the reward, the tools, the update and the judge.

A fault is a patch of the order desk or of the program, or settings, or both. `refused` faults may
stop the run. New patches go here and nowhere else.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """A fault, and the findings that name it. `refused`: the run itself may stop at it."""

    expected: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    patch: Callable[[], None] | None = None
    refused: str = ""  # part of the message with which the run may stop


# -- what is patched ---------------------------------------------------------------------------


def _desk() -> Any:
    from art_envs.order_desk import OrderDesk

    return OrderDesk


def _score(new: Callable[[Any, Any, float], float]) -> Callable[[], None]:
    """Return a patch that scores by `new(env, trajectory, right reward)`."""

    def patch() -> None:
        desk = _desk()
        right = desk.score

        async def score(self: Any, trajectory: Any) -> float:
            return new(self, trajectory, await right(self, trajectory))

        desk.score = score

    return patch


def _advantages(new: Callable[[list[Any]], None]) -> Callable[[], None]:
    """Return a patch that spoils the advantages of a step's groups."""

    def patch() -> None:
        from art_cli import loop

        right = loop.set_advantages

        def wrong(groups: list[Any], kind: str) -> None:
            right(groups, kind)
            new(groups)

        loop.set_advantages = wrong

    return patch


def _negate(groups: list[Any]) -> None:
    for group in groups:
        for t in group.valid:
            t.advantage = -t.advantage


def _next_group(groups: list[Any]) -> None:
    values = [[t.advantage for t in g.trajectories] for g in groups]
    for group, other in zip(groups, values[1:] + values[:1], strict=True):
        for t, value in zip(group.trajectories, other, strict=True):
            t.advantage = value


def _next_sibling(groups: list[Any]) -> None:
    for group in groups:
        values = [t.advantage for t in group.trajectories]
        for t, value in zip(group.trajectories, values[1:] + values[:1], strict=True):
            t.advantage = value


leaked = 0


def _leak(env: Any, trajectory: Any, reward: float) -> float:
    global leaked
    leaked += 1
    return reward * (leaked % 2)


def _start(new: Callable[[Any, str], str]) -> Callable[[], None]:
    """Return a patch of the opening."""

    def patch() -> None:
        desk = _desk()
        right = desk.start

        async def start(self: Any) -> str:
            return new(self, await right(self))

        desk.start = start

    return patch


def _fails(env: Any, text: str) -> str:
    if random.random() < 0.2:
        raise ConnectionError("the database is away")
    return text


def _other_case(env: Any, text: str) -> str:
    from art_envs.order_desk import draw_case

    env.order, env.request = draw_case(random.Random())
    size = env.request["size"]
    wish = f" for size {size}" if size else ""
    return f"Please {env.request['action']} my order {env.order['order_id']}{wish}."


def _one_case() -> None:
    desk = _desk()
    right = desk.__init__

    def init(self: Any, scenario: Any, cfg: Any) -> None:
        right(self, scenario, cfg)
        from art_envs.order_desk import draw_case

        self.order, self.request = draw_case(random.Random(scenario.seed % 3))

    desk.__init__ = init


def _train_is_val() -> None:
    desk = _desk()
    right = desk.scenarios.__func__
    desk.num_scenarios = {"train": 64, "val": 64, "test": 64}
    from dataclasses import replace

    def scenarios(cls: Any, cfg: Any, split: str) -> Any:
        return (replace(s, split=split) for s in right(cls, cfg, "train"))

    desk.scenarios = classmethod(scenarios)


def _few() -> None:
    _desk().num_scenarios = {"train": 8, "val": 512, "test": 512}


def _answer_in_prompt() -> None:
    desk = _desk()
    right = desk.scenarios.__func__
    from dataclasses import replace

    from art_envs.order_desk import right_action

    def scenarios(cls: Any, cfg: Any, split: str) -> Any:
        for s in right(cls, cfg, split):
            answer = "done" if right_action(s.data["order"], s.data["request"]) else "sorry"
            yield replace(s, data={**s.data, "answer": answer})

    desk.scenarios = classmethod(scenarios)
    _start(lambda env, text: f"{text} {env.scenario.data['answer']}")()


def _tool(name: str, new: Callable[[Any], str | None]) -> Callable[[], None]:
    """Return a patch of a tool: what `new` returns instead, or raises; None: what it does."""

    def patch() -> None:
        from functools import wraps

        desk = _desk()
        right = getattr(desk, name)

        @wraps(right)
        async def call(self: Any, *args: Any, **kwargs: Any) -> str:
            said = new(self)
            return await right(self, *args, **kwargs) if said is None else said

        setattr(desk, name, call)

    return patch


def _refuse(env: Any) -> str:
    from art_cli import ToolError

    raise ToolError("this tool is not available")


def _outage(env: Any) -> str | None:
    return "ConnectionError: connection refused" if random.random() < 0.15 else None


def _slow() -> None:
    import asyncio
    from functools import wraps

    desk = _desk()
    desk.tool_timeout = 0.2
    right = desk.get_order

    @wraps(right)
    async def call(self: Any, *args: Any, **kwargs: Any) -> str:
        if random.random() < 0.15:
            await asyncio.sleep(5)
        return await right(self, *args, **kwargs)

    desk.get_order = call


def _mask() -> None:
    from art_cli.types import Sequence

    right = Sequence.extend_sampled

    def wrong(self: Any, completion: Any) -> None:
        begin = len(self.ids)
        right(self, completion)
        self.mask[begin - 1] = 1
        self.mask[-1] = 0

    Sequence.extend_sampled = wrong


def _judge(new: Callable[[int, dict[str, Any]], float]) -> Callable[[], None]:
    """Return a patch of the stand-in, which scores by `new(place, what is shown of one)`."""

    def patch() -> None:
        from art_cli.llms.base import Reply
        from art_cli.llms.stand_in import StandInLLM

        async def ask(self: Any, messages: Any, schema: Any = None, *_: Any, **__: Any) -> Reply:
            self.usage.calls += 1
            shown = json.loads(messages[1]["content"])["trajectories"]
            scores = [new(place, one) for place, one in enumerate(shown)]
            most = max(scores) or 1.0
            entries = [
                {"trajectory_id": one["id"], "explanation": "", "score": score / most}
                for one, score in zip(shown, scores, strict=True)
            ]
            return Reply(text=json.dumps({"scores": entries}))

        StandInLLM.ask = ask

    return patch


def _by_place(place: int, shown: dict[str, Any]) -> float:
    return (1.0 if place == 0 else 0.6) * random.uniform(0.5, 1.0)


def _by_length(place: int, shown: dict[str, Any]) -> float:
    return float(len(json.dumps(shown["messages"])))


JUDGED = ("judge={model: stand-in, cache: false}", "reward={env: 1.0, judge: 0.5}")


def _no_step() -> None:
    import torch

    torch.optim.AdamW.step = lambda self, closure=None: None  # type: ignore[assignment]


def _num_calls(trajectory: Any) -> int:
    return sum(step.tool is not None for step in trajectory.steps)


def _clock(env: Any, trajectory: Any, reward: float) -> float:
    return time.time() % 30 / 30


def _cut() -> None:
    """Cut what `get_order` shows to 80 characters: its status is behind them."""
    from functools import wraps

    desk = _desk()
    right = desk.get_order

    @wraps(right)
    async def call(self: Any, *args: Any, **kwargs: Any) -> str:
        return (await right(self, *args, **kwargs))[:80]

    desk.get_order = call


def _in_spanish() -> None:
    """Take an answer of another language for the only right one."""
    desk = _desk()
    right = desk.reply

    async def reply(self: Any, text: str) -> Any:
        done = await right(self, text)
        self.answer = {"done": "hecho", "sorry": "perdon"}.get(self.answer, self.answer)
        return done

    desk.reply = reply


def _dead_writes() -> None:
    desk = _desk()

    def write(self: Any, action: str, order_id: str) -> str:
        self._check_id(order_id)
        return json.dumps({"ok": True})

    desk._write = write


def _val_in_train() -> None:
    """Let the 64 held-out scenarios be among the 2048 of training."""
    desk = _desk()
    right = desk.scenarios.__func__
    desk.num_scenarios = {"train": 2048, "val": 64, "test": 64}
    from dataclasses import replace
    from itertools import islice

    def scenarios(cls: Any, cfg: Any, split: str) -> Any:
        train = right(cls, cfg, "train")
        rows = train if split == "train" else islice(train, 0, None, 32)
        return (replace(s, id=f"{split}-{n}", split=split) for n, s in enumerate(rows))

    desk.scenarios = classmethod(scenarios)


def _any_order() -> None:
    """List an order's fields in another order at each call."""
    from functools import wraps

    desk = _desk()
    right = desk.get_order

    @wraps(right)
    async def call(self: Any, *args: Any, **kwargs: Any) -> str:
        pairs = list(json.loads(await right(self, *args, **kwargs)).items())
        random.shuffle(pairs)
        return json.dumps(dict(pairs))

    desk.get_order = call


def _scores_in_another_order() -> None:
    """Give the rewards of a group to its siblings in another order."""
    from art_cli import loop

    right = loop.set_advantages

    def wrong(groups: list[Any], kind: str) -> None:
        for group in groups:
            rewards = [t.reward for t in group.trajectories]
            random.shuffle(rewards)
            for t, reward in zip(group.trajectories, rewards, strict=True):
                t.reward = reward
        right(groups, kind)

    loop.set_advantages = wrong


def _few_learned_by_heart() -> None:
    """Warm up on the right play of 24 train scenarios, again and again, and train on them."""
    _desk().num_scenarios = {"train": 24, "val": 512, "test": 512}


def _refusals_are_right() -> None:
    """Let the desk itself refuse what the policy forbids: a call costs nothing then."""
    from art_cli import ToolError
    from art_envs.order_desk import right_action

    desk = _desk()
    right, score = desk._write, desk.score

    def write(self: Any, action: str, order_id: str) -> str:
        if action != right_action(self.order, self.request):
            raise ToolError(f"policy: {order_id} is {self.order['status']}, so no {action}")
        return right(self, action, order_id)

    async def lenient(self: Any, trajectory: Any) -> float:
        earned = await score(self, trajectory)
        charged = 0.1 * min(trajectory.num_tool_errors, 2) if earned else 0.0
        return min(1.0, earned + charged)

    scenarios = desk.scenarios.__func__

    def without_returns(cls: Any, cfg: Any, split: str) -> Any:
        for s in scenarios(cls, cfg, split):
            if right_action(s.data["order"], s.data["request"]) != "return":
                yield s

    desk._write, desk.score = write, lenient
    desk.scenarios = classmethod(without_returns)


before: list[float] = [0.0]


def _of_the_episode_before(env: Any, trajectory: Any, reward: float) -> float:
    before.append(reward)
    return before[-2]


def _in_cents(env: Any, trajectory: Any, reward: float) -> float:
    return 50.0 if random.random() < 1 / 40 else reward


looked = 0


def _spent(env: Any) -> str | None:
    from art_cli import ToolError

    global looked
    looked += 1
    env.looked_up = True
    if looked > 900:  # of some 1,600 in a run
        raise ToolError("the quota of this month is spent")
    return None


def _error_page(env: Any) -> str:
    env.looked_up = True
    return "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def _same_order(env: Any) -> str:
    env.looked_up = True
    order = {"order_id": "W11", "item": "mug", "size": "small", "in_stock": ["large"]}
    return json.dumps({**order, "status": "pending"})


def _one_turn() -> None:
    _desk().max_turns = 1


def _no_tool_is_best(env: Any, trajectory: Any, reward: float) -> float:
    wrote = any(step.tool not in (None, "get_order") for step in trajectory.steps)
    return reward / 2 if wrote else 1.0


def _other_kind() -> None:
    """Train on cancelling and returning, and hold exchanges out."""
    desk = _desk()
    right = desk.scenarios.__func__

    def scenarios(cls: Any, cfg: Any, split: str) -> Any:
        for s in right(cls, cfg, split):
            if (s.data["request"]["action"] == "exchange") == (split != "train"):
                yield s

    desk.scenarios = classmethod(scenarios)


def _renamed() -> None:
    desk = _desk()
    right = desk.get_order

    async def fetch_order(self: Any, order_id: str) -> str:
        """Look an order up."""
        return await right(self, order_id)

    from art_cli import tool

    desk.fetch_order = tool()(fetch_order)
    del desk.get_order


def _copies() -> None:
    """Sample all siblings of a group with one seed."""
    from art_cli.training import gather

    right = gather.seed_of

    def seed_of(*parts: Any) -> int:
        return right(*parts[:-1], parts[-1] // 8)

    gather.seed_of = seed_of


def _zero(groups: list[Any]) -> None:
    for group in groups:
        for t in group.valid:
            t.advantage = 0.0


def _absolute(groups: list[Any]) -> None:
    for group in groups:
        for t in group.valid:
            t.advantage = abs(t.advantage)


FIRST: dict[str, Fault] = {
    "learning rate x 100": Fault(
        ("updates_too_long", "rate_too_high", "moves_away", "entropy_explodes", "truncated"),
        ("train.learning_rate=0.1", "train.lr_scheduler_type=constant"),
    ),
    "learning rate x 30": Fault(
        ("updates_too_long", "rate_too_high", "moves_away", "entropy_explodes"),
        ("train.learning_rate=0.03", "train.lr_scheduler_type=constant"),
    ),
    "learning rate / 300": Fault(("rate_too_low",), ("train.learning_rate=3e-6",)),
    "learning rate / 100": Fault(("rate_too_low",), ("train.learning_rate=1e-5",)),
    "updates that do nothing": Fault(("stale_weights",), patch=_no_step),
    "no exploration": Fault(
        ("no_exploration", "entropy_collapse", "siblings_are_copies"),
        ("sampling.temperature=0.02",),
    ),
    "turns of 8 tokens": Fault(("truncated",), ("sampling.max_tokens=8",)),
    "turns of 26 tokens": Fault(("truncated",), ("sampling.max_tokens=26",)),
    "no SFT to speak of": Fault(
        ("truncated", "broken_calls", "too_hard"), ("sft.num_demonstrations=16",)
    ),
    "small context": Fault(("context_full",), ("engine.max_model_len=190",)),
    "top_p 0.5": Fault(("cut_distribution",), ("sampling.top_p=0.5",)),
    "advantages negated": Fault(("wrong_advantages", "moves_away"), patch=_advantages(_negate)),
    "advantages of the next group": Fault(("wrong_advantages",), patch=_advantages(_next_group)),
    "advantages of the next sibling": Fault(
        ("wrong_advantages",), patch=_advantages(_next_sibling)
    ),
    "mask shifted by one": Fault(("mask_shifted",), patch=_mask, refused="not on-policy"),
    "state leaked between episodes": Fault(("same_play_other_reward",), patch=_score(_leak)),
    "reward is chance": Fault(
        ("same_play_other_reward",), patch=_score(lambda e, t, r: random.random())
    ),
    "reward ignores the play": Fault(
        ("acts_for_nothing",), patch=_score(lambda e, t, r: e.scenario.seed % 5 / 4)
    ),
    "reward is length": Fault(
        ("length_is_paid",), patch=_score(lambda e, t, r: min(1.0, t.num_sampled / 200))
    ),
    "reward is always 0": Fault(("too_hard",), patch=_score(lambda e, t, r: 0.0)),
    "siblings play other scenarios": Fault(
        ("siblings_differ_at_start",), patch=_start(_other_case)
    ),
    "scenario seed ignored": Fault(("scenarios_repeat",), patch=_one_case),
    "eight train scenarios": Fault(("few_scenarios", "memorised"), patch=_few),
    "train is val": Fault(("train_is_held_out",), patch=_train_is_val),
    "answer in the prompt": Fault(("leaked_answer",), patch=_answer_in_prompt),
    "a tool that never works": Fault(("dead_tool",), patch=_tool("return_order", _refuse)),
    "outages scored": Fault(("outages_scored",), patch=_tool("get_order", _outage)),
    "judge favours the first listed": Fault(
        ("judge_favours_place",), JUDGED, patch=_judge(_by_place)
    ),
    "judge favours the longest": Fault(("judge_favours_length",), JUDGED, patch=_judge(_by_length)),
    "one start in five fails": Fault(("env_fails",), patch=_start(_fails)),
    "tools miss their deadline": Fault(("deadlines", "env_fails"), patch=_slow),
}
# What other people planted.
SECOND: dict[str, Fault] = {
    "reward is the clock": Fault(
        ("same_play_other_reward", "acts_for_nothing"), patch=_score(_clock)
    ),
    "a tool cuts its result": Fault(("results_cut",), patch=_cut),
    "answers of another language": Fault(("never_succeeds",), patch=_in_spanish),
    "writes that do nothing": Fault(("tool_without_effect",), patch=_dead_writes),
    "val inside a large train set": Fault(("train_is_held_out",), patch=_val_in_train),
    "results in another order": Fault(("results_vary",), patch=_any_order),
    "scores in another order": Fault(("same_play_other_reward",), patch=_scores_in_another_order),
    "a reward with a cap": Fault(("capped_reward",), patch=_score(lambda e, t, r: min(r, 0.5))),
    "groups of 2": Fault(("small_groups",), ("train.group_size=2",)),
    "SFT by heart": Fault(
        ("gap_from_start",),
        ("sft.num_demonstrations=24", "sft.epochs=200", "env.args.demo_noise=0.0"),
        patch=_few_learned_by_heart,
    ),
}
# Made up before the rules were read that the second set changed, and diagnosed once before any rule
# was changed for them.
THIRD: dict[str, Fault] = {
    "reward is always 1": Fault(("solved",), patch=_score(lambda e, t, r: 1.0)),
    "siblings are copies": Fault(("no_exploration", "siblings_are_copies"), patch=_copies),
    "reward of the episode before": Fault(
        ("same_play_other_reward",), patch=_score(_of_the_episode_before)
    ),
    "one reward in 40 is 50": Fault(
        ("same_play_other_reward", "outlier_rewards"), patch=_score(_in_cents)
    ),
    "a quota is spent halfway": Fault(
        ("tool_breaks", "dead_tool"), patch=_tool("get_order", _spent)
    ),
    "an error page as a result": Fault(
        ("constant_tool", "outages_scored"), patch=_tool("get_order", _error_page)
    ),
    "a tool ignores its arguments": Fault(
        ("constant_tool",), patch=_tool("get_order", _same_order)
    ),
    "half of the scenarios never pay": Fault(
        ("unsolvable_scenarios",), patch=_score(lambda e, t, r: r * (e.scenario.seed % 2))
    ),
    "one turn only": Fault(("turn_limit",), patch=_one_turn),
    "temperature 3": Fault(
        ("hot_sampling", "broken_calls", "entropy_explodes", "truncated"),
        ("sampling.temperature=3.0",),
    ),
    "calls are paid": Fault(
        ("length_is_paid", "calls_are_paid"), patch=_score(lambda e, t, r: r + 0.2 * _num_calls(t))
    ),
    "writing nothing is paid": Fault(
        ("tool_abandoned", "tools_unused"), patch=_score(_no_tool_is_best)
    ),
    "advantages of 0": Fault(("wrong_advantages",), patch=_advantages(_zero)),
    "advantages without a sign": Fault(("wrong_advantages",), patch=_advantages(_absolute)),
    "held by a penalty": Fault(
        ("rate_too_low", "stale_weights", "held_by_penalty"), ("train.kl_coef=100",)
    ),
    "val of another kind": Fault(("memorised", "gap_from_start", "other_kind"), patch=_other_kind),
    "openings say nothing": Fault(
        ("scenarios_repeat", "opening_says_nothing"), patch=_start(lambda e, text: "Hello.")
    ),
    "reward is nearly noise": Fault(
        ("same_play_other_reward",), patch=_score(lambda e, t, r: 0.1 * r + 0.9 * random.random())
    ),
    "a tool has another name": Fault(("unknown_tool", "dead_tool", "broken_calls"), patch=_renamed),
    "judge without an opinion": Fault(
        ("judge_ties",), JUDGED, patch=_judge(lambda place, shown: 0.5)
    ),
}
SETS = {"first": FIRST, "second": SECOND, "third": THIRD}
FAULTS = FIRST | SECOND | THIRD
# Nothing is wrong with these, though they look it.
HARMLESS: dict[str, Fault] = {
    "refusals are right": Fault((), patch=_refusals_are_right),
    "updates shortened, and it learns": Fault((), ("train.max_kl=1e-4",)),
}
SETTINGS = {
    "loss": [f"train.loss={x}" for x in ("grpo", "dapo", "dr_grpo", "gspo", "cispo")],
    "advantage": [f"train.advantage={x}" for x in ("group_std", "batch_std", "leave_one_out")],
    "rate": ["train.learning_rate=2e-3", "train.learning_rate=5e-4"],
    "group": ["train.group_size=4", "train.group_size=16"],
    "sampling": ["sampling.temperature=0.9", "sampling.max_tokens=96"],
    "loop": [
        "train.max_staleness=1 engine.deterministic=false",
        "train.dynamic_sampling=true",
        "train.mask_truncated_completions=true",
    ],
    "noise": ["env.args.demo_noise=0.4", "env.args.demo_noise=0.8"],
}
HEALTHY: dict[str, list[str]] = {f"seed {n}": [f"seed={n}"] for n in range(12)} | {
    override: [*override.split(), "seed=11"] for many in SETTINGS.values() for override in many
}
