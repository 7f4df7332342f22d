"""Does `art why` find what is wrong? Plants one fault at a time into a run that learns.

    python scripts/bench/faults.py --runs-dir /tmp/faults          # plays what is not there yet
    python scripts/bench/faults.py --runs-dir /tmp/faults --only-report

Each fault, and each healthy run, is a run of the order desk of 21 steps in a process of its
own. Half of them are kept apart while rules are tuned: those whose names hash to 1. Printed: for
each fault whether its finding came, and its rank; for each healthy run what was called serious.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).parents[2] / "configs/quickstart.yaml"
WARM = "warm"  # the run whose base, after its warm-up, all others begin with
SIZE = ["train.steps=21", "train.scenarios_per_step=8", "eval.every=7", "eval.episodes=64"]
SIZE += ["train.minibatches=1", "train.passes=1"]
LIMIT = 900  # seconds of one run


@dataclass(frozen=True)
class Fault:
    """What is planted, and the findings that name it. `refused`: the run itself may stop at it."""

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


JUDGED = ("judge={model: stand-in, cache: false}", "reward={env: 1.0, ruler: 0.5}")


def _no_step() -> None:
    import torch

    torch.optim.AdamW.step = lambda self, closure=None: None  # type: ignore[assignment]


FAULTS: dict[str, Fault] = {
    "learning rate x 100": Fault(
        ("updates_too_long", "rate_too_high", "moves_away", "entropy_explodes", "truncated"),
        ("train.learning_rate=0.1", "train.schedule=constant"),
    ),
    "learning rate x 30": Fault(
        ("updates_too_long", "rate_too_high", "moves_away", "entropy_explodes"),
        ("train.learning_rate=0.03", "train.schedule=constant"),
    ),
    "learning rate / 300": Fault(("rate_too_low",), ("train.learning_rate=3e-6",)),
    "learning rate / 100": Fault(("rate_too_low",), ("train.learning_rate=1e-5",)),
    "updates that do nothing": Fault(("stale_weights",), patch=_no_step),
    "no exploration": Fault(("no_exploration", "entropy_collapse"), ("sampling.temperature=0.02",)),
    "turns of 8 tokens": Fault(("truncated",), ("sampling.max_tokens=8",)),
    "turns of 26 tokens": Fault(("truncated",), ("sampling.max_tokens=26",)),
    "no warm-up to speak of": Fault(
        ("truncated", "broken_calls", "too_hard"), ("warmup.num_demonstrations=16",)
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
SETTINGS = {
    "loss": [f"train.loss={x}" for x in ("grpo", "dapo", "dr_grpo", "gspo", "cispo")],
    "advantage": [f"train.advantage={x}" for x in ("group_std", "batch_std", "leave_one_out")],
    "rate": ["train.learning_rate=2e-3", "train.learning_rate=5e-4"],
    "group": ["train.group_size=4", "train.group_size=16"],
    "sampling": ["sampling.temperature=0.9", "sampling.max_tokens=96"],
    "loop": ["train.max_staleness=1", "train.refill=true", "train.overlong=mask"],
    "noise": ["env.args.demo_noise=0.4", "env.args.demo_noise=0.8"],
}
HEALTHY: dict[str, list[str]] = {f"seed {n}": [f"seed={n}"] for n in range(6)} | {
    override: [override, "seed=11"] for many in SETTINGS.values() for override in many
}


@dataclass
class Report:
    """What `art why` said of one run."""

    name: str
    findings: list[Any] = field(default_factory=list)
    refused: str = ""


def is_kept_apart(name: str) -> bool:
    """Return whether the rules were not tuned on it."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def folder_of(name: str) -> str:
    """Return the name of the run."""
    return "".join(c if c.isalnum() else "-" for c in name)


def play_one(name: str, runs_dir: Path, log: Path) -> None:
    """Run one in this process, with its fault in place; what it prints goes to the log."""
    from art_cli.cli.main import main as art

    half_written = log.with_suffix(".part")
    file = os.open(half_written, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)

    fault = FAULTS.get(name)
    overrides = list(fault.overrides) if fault else HEALTHY.get(name, ["train.steps=1"])
    if fault and fault.patch:
        fault.patch()
    if name != WARM and not any("demo" in override for override in overrides):
        base = runs_dir / "faults" / WARM / "base"
        overrides = [f"model.base={base}", "warmup=null", *overrides]
    sys.argv = ["art", "run", str(CONFIG), *SIZE, f"name={folder_of(name)}", "project=faults"]
    sys.argv += [*overrides, "--runs-dir", str(runs_dir), "--overwrite", "--yes"]
    try:
        art()
    finally:
        half_written.rename(log)


def play_all(names: list[str], runs_dir: Path, jobs: int) -> None:
    """Play what is not there yet, a few at a time."""

    def play(name: str) -> None:
        log = runs_dir / f"{folder_of(name)}.log"
        if log.exists():
            return
        process = context.Process(target=play_one, args=(name, runs_dir, log))
        process.start()
        process.join(LIMIT)
        if process.is_alive():
            process.kill()
        said = "ran" if process.exitcode == 0 else "stopped"
        print(f"{name}: {said}", file=sys.stderr, flush=True)

    runs_dir.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["art_cli.backends.local", "art_cli.cli.main", "art_cli.loop"])
    play(WARM)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(play, names))


def examine(name: str, runs_dir: Path) -> Report:
    """Ask `art why` of a run."""
    from art_cli.runs.directory import RunDir
    from art_cli.why.diagnose import diagnose
    from art_cli.why.evidence import read_evidence

    report = Report(name)
    run = RunDir(runs_dir / "faults" / folder_of(name))
    if run.config.exists():
        report.findings = diagnose(read_evidence(run))
    log = (runs_dir / f"{folder_of(name)}.log").read_text()
    if "\nerror: " in f"\n{log}":
        report.refused = f"\n{log}".rpartition("\nerror: ")[2].strip().partition("\n")[0]
    return report


def tell_faults(reports: list[Report]) -> None:
    """Print a table of faults, and the share that was found."""
    print("| fault | kept apart | found | rank | what came |\n|---|---|---|---|---|")
    found: dict[bool, list[int]] = {False: [], True: []}
    for report in reports:
        fault, names = FAULTS[report.name], [f.name for f in report.findings]
        ranks = [n for n, name in enumerate(names, 1) if name in fault.expected]
        stopped = bool(fault.refused) and fault.refused in report.refused
        rank = 1 if stopped else ranks[0] if ranks else 0
        apart = is_kept_apart(report.name)
        found[apart].append(rank)
        what = f"the run stops: {report.refused[:60]}" if stopped else ", ".join(names)
        said = what or report.refused[:80] or "nothing"
        cells = ["yes" if apart else "", "yes" if rank else "**no**", str(rank or "-"), said]
        print(f"| {report.name} | {' | '.join(cells)} |")
    for apart, ranks in found.items():
        which = "kept apart" if apart else "tuned on"
        print(
            f"\nfaults {which}: {sum(map(bool, ranks))} of {len(ranks)} found, "
            f"{sum(0 < r <= 2 for r in ranks)} among the first two"
        )


def tell_healthy(reports: list[Report]) -> None:
    """Print what was said of healthy runs."""
    print("\n| healthy run | kept apart | serious | notable |\n|---|---|---|---|")
    for report in reports:
        said = {
            w: ", ".join(f.name for f in report.findings if f.weight == w)
            for w in ("serious", "notable")
        }
        apart = "yes" if is_kept_apart(report.name) else ""
        print(f"| {report.name} | {apart} | {said['serious']} | {said['notable']} |")
    for apart in (False, True):
        half = [r for r in reports if is_kept_apart(r.name) == apart]
        wrong = sum(any(f.weight == "serious" for f in r.findings) for r in half)
        print(f"\nhealthy {'kept apart' if apart else 'tuned on'}: {wrong} of {len(half)} serious")


def main() -> None:
    """Play, examine, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only-report", action="store_true")
    args = parser.parse_args()
    if not args.only_report:
        names = [*FAULTS, *HEALTHY]
        play_all(names[::2] + names[1::2], args.runs_dir, args.jobs)
    there = [n for n in (*FAULTS, *HEALTHY) if (args.runs_dir / f"{folder_of(n)}.log").exists()]
    reports = {name: examine(name, args.runs_dir) for name in there}
    tell_faults([r for n, r in reports.items() if n in FAULTS])
    tell_healthy([r for n, r in reports.items() if n in HEALTHY])


if __name__ == "__main__":
    main()
