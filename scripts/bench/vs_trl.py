"""Our training step against TRL's GRPOTrainer: CPU seconds, and what is learned.

Both train the same warm-started model of 0.13M parameters with the same tokenizer, prompts, group
size, loss and optimizer on one thread. Their steps alternate (TRL, ours, TRL, ours, ...) in one
process, so that whatever else the machine does meets both.

    single    one turn of exactly 64 tokens
    multi     the order desk: tools under a policy, at most 5 turns of at most 64 tokens
    long      the same with a system prompt of some 400 tokens
    learn     the order desk's held-out reward after some updates

TRL needs an environment of its own: the first call makes one (--venv) and runs the script in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from our_side import OurSide
    from setting import Step

    from art_cli.types import Message

ROOT = Path(__file__).resolve().parents[2]
TRL = "trl==1.16.*"
MODES = ("single", "multi", "long", "learn")
os.environ.update(
    OMP_NUM_THREADS="1",
    OMP_WAIT_POLICY="PASSIVE",
    CUDA_VISIBLE_DEVICES="",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    TRL_EXPERIMENTAL_SILENCE="1",
)


def main() -> None:
    """Parse, enter the environment, measure, print, write."""
    args = parse()
    enter(args.venv)
    check_versions()
    settings = {k: v for k, v in vars(args).items() if k not in ("venv", "out")}
    results: dict[str, Any] = {"machine": machine(), "settings": settings}
    with tempfile.TemporaryDirectory() as folder:
        for mode in args.modes:
            run = learn if mode == "learn" else timing
            results[mode] = run(mode, args, Path(folder) / mode)
    print(f"\nmachine: {results['machine']}")
    for mode in args.modes:
        print("\n" + (learning_table if mode == "learn" else timing_table)(mode, results[mode]))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwritten: {args.out}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "modes", nargs="*", default=list(MODES), help=f"among {', '.join(MODES)}; default: all"
    )
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each side, 2 skipped")
    parser.add_argument(
        "--microbatch", type=int, default=16, help="sequences in one forward of TRL's update, of 64"
    )
    parser.add_argument(
        "--updates", type=int, nargs="+", default=[20, 60], help="learn: evaluate after so many"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="learn: which seeds")
    parser.add_argument("--lr", type=float, default=1e-3, help="learn: learning rate of both")
    parser.add_argument(
        "--timing-lr",
        type=float,
        default=1e-7,
        help="single, multi: so low that both go on sampling from the same policy",
    )
    parser.add_argument("--venv", type=Path, default=ROOT / ".bench-venv", help="made if missing")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "vs_trl.json"
    )
    args = parser.parse_args()
    if unknown := set(args.modes) - set(MODES):
        parser.error(f"unknown mode {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    return args


# ------------------------------------------------------------------ the environment


def enter(folder: Path) -> None:
    """Go on in the environment with TRL; make it first if there is none."""
    folder = folder.resolve()
    if Path(sys.prefix).resolve() == folder:
        return
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder} with {TRL} (minutes)", flush=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, TRL, "-e", str(ROOT)], check=True)  # PIP_FIND_LINKS is honoured
    os.execv(python, [str(python), *sys.argv])


def check_versions() -> None:
    """TRL must have left the versions that we need in place."""
    from packaging.requirements import Requirement

    for line in [TRL, *(metadata.requires("art-cli") or [])]:
        wanted = Requirement(line)
        if wanted.marker is None and wanted.name in ("trl", "torch", "transformers"):
            have = metadata.version(wanted.name)
            if not wanted.specifier.contains(have):
                sys.exit(f"error: {wanted.name} {have} is not in {wanted.specifier}")


def machine() -> dict[str, Any]:
    """Return the machine that the numbers were measured on."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "trl")}
    return {"arch": platform.machine(), "cores": os.cpu_count(), "threads": 1, **versions}


# ------------------------------------------------------------------ time


def timing(mode: str, args: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Steps of both, alternating; the policy all but stays what it is."""
    import trl_side
    from our_side import OurSide, warm_start
    from setting import LongDesk, Vowels

    import art_cli as art
    from art_envs.order_desk import OrderDesk

    multi = mode != "single"
    env = {"single": Vowels, "multi": OrderDesk, "long": LongDesk}[mode]
    theirs: list[Step] = []
    mine: list[Step] = []
    with asyncio.Runner() as runner:
        print(f"{mode}: warm start", flush=True)
        base = runner.run(warm_start(root, 0, env if multi else OrderDesk))
        backend = art.LocalBackend(root)
        lr = args.timing_lr
        us = runner.run(OurSide.make(backend, "us", base, env, lr, 0, stops=multi))
        stream = us.stream(args.steps)
        prompts = runner.run(us.openings(stream))
        check_prompts(us, base, prompts[0], tools=multi)
        check_calls(base)

        def after_theirs(step: Step, model: object) -> None:
            theirs.append(step)
            mine.append(runner.run(us.step(stream[len(mine)])))
            print(f"  {mode} {len(mine)}/{args.steps}: {line(step)} | {line(mine[-1])}", flush=True)

        theirs_args = (base, stream, prompts, lr, 0, args.microbatch, after_theirs)
        trl_side.train(*theirs_args, tools=multi)
        runner.run(backend.close())
    return {"trl": [asdict(s) for s in theirs], "art": [asdict(s) for s in mine]}


def line(step: Step) -> str:
    """A step in a few words."""
    return f"{step.rollout:.2f} + {step.update:.2f} s, {step.sampled} tokens"


def check_prompts(us: OurSide, base: Path, opening: list[Message], *, tools: bool) -> None:
    """Both must read the same tokens."""
    import trl_side

    renderer = us.model.parts.renderer
    ours = list(renderer.encode(renderer.text(opening)))
    theirs = trl_side.prompt_ids(base, opening, tools=tools)
    assert ours == theirs, "TRL would read another prompt"
    print(f"  the same {len(ours)} prompt tokens on both sides", flush=True)


def check_calls(base: Path) -> None:
    """Both must take the same turns for tool calls."""
    import trl_side
    from our_side import as_trl_reads

    from art_cli.chat.turns import read_turn

    good = '{"name": "get_order", "arguments": {"order_id": "W42"}}'
    closed = f"<tool_call>{good}</tool_call>"
    cut, nameless = closed.replace("}}", "}"), "<tool_call>{}</tool_call>"
    turns = [closed, closed + closed, "so: " + closed, "done", good]
    turns += ["<tool_call>" + good, cut, closed + cut, nameless, "<tool_call>" + closed]
    for turn in turns:
        ours, theirs = bool(as_trl_reads(read_turn(turn))), trl_side.calls_tools(base, turn)
        assert ours == theirs, f"TRL would read another turn: {turn}"


def timing_table(mode: str, result: dict[str, Any]) -> str:
    """Medians and their ratios."""
    from setting import SKIPPED

    def median(side: str, *names: str) -> float:
        return statistics.median(sum(s[n] for n in names) for s in result[side][SKIPPED:])

    rows = [f"{mode:8} {'rollout':>9} {'update':>9} {'step':>9} {'tokens':>8}   (CPU s, medians)"]
    parts = (("rollout",), ("update",), ("rollout", "update"))
    for side in ("trl", "art"):
        seconds = " ".join(f"{median(side, *p):9.3f}" for p in parts)
        rows.append(f"{side:8} {seconds} {median(side, 'sampled'):8.0f}")
    ratios = " ".join(f"{median('trl', *p) / median('art', *p):8.1f}x" for p in parts)
    rows.append(f"{'trl/art':8} {ratios}")
    return "\n".join(rows)


# ------------------------------------------------------------------ learning


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Held-out reward of one run after some numbers of updates."""

    side: str
    seed: int
    reward: dict[int, float]


def learn(mode: str, args: argparse.Namespace, root: Path) -> list[dict[str, Any]]:
    """The order desk from the same weights with the same learning rate, on both sides."""
    curves: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        for seed in args.seeds:
            print(f"learn, seed {seed}: warm start", flush=True)
            both = [asdict(c) for c in learn_one(runner, seed, args, root)]
            print(learning_table(mode, both), flush=True)
            curves += both
    return curves


def learn_one(
    runner: asyncio.Runner, seed: int, args: argparse.Namespace, root: Path
) -> list[Curve]:
    """One seed of both: the weights, the scenarios and the sampling follow from it."""
    import torch
    import trl_side
    from our_side import OurSide, warm_start

    import art_cli as art
    from art_envs.order_desk import OrderDesk

    base = runner.run(warm_start(root, seed))
    backend = art.LocalBackend(root)
    us = runner.run(OurSide.make(backend, f"us-{seed}", base, OrderDesk, args.lr, seed))
    stream = us.stream(max(args.updates))
    prompts = runner.run(us.openings(stream))
    check_calls(base)
    start = runner.run(us.held_out())
    mine, theirs = {0: start}, {0: start}
    for n, scenarios in enumerate(stream, 1):
        step = runner.run(us.step(scenarios))
        if n % 5 == 0:
            print(f"  art {n}/{len(stream)}: train reward {step.reward:.2f}", flush=True)
        if n in args.updates:
            mine[n] = runner.run(us.held_out())
    snapshots: dict[int, dict[str, torch.Tensor]] = {}
    num = 0

    def after(step: Step, model: torch.nn.Module) -> None:
        nonlocal num
        num += 1
        if num % 5 == 0:
            print(f"  trl {num}/{len(stream)}: train reward {step.reward:.2f}", flush=True)
        if num in args.updates:
            snapshots[num] = {k: v.clone() for k, v in model.state_dict().items()}

    trl_side.train(base, stream, prompts, args.lr, seed, args.microbatch, after, tools=True)
    for n, weights in snapshots.items():
        theirs[n] = runner.run(us.held_out(weights))
    runner.run(backend.close())
    return [
        Curve(side="trl", seed=seed, reward=theirs),
        Curve(side="art", seed=seed, reward=mine),
    ]


def learning_table(mode: str, curves: list[dict[str, Any]]) -> str:
    """Held-out reward by updates; the mean difference of a seed's pair, and its standard error."""
    updates = list(curves[0]["reward"])
    rows = [f"{mode:8} {'seed':>5} " + " ".join(f"{f'after {n}':>9}" for n in updates)]
    for curve in curves:
        reached = " ".join(f"{curve['reward'][n]:9.3f}" for n in updates)
        rows.append(f"{curve['side']:8} {curve['seed']:5} {reached}")
    rewards = {side: [c["reward"] for c in curves if c["side"] == side] for side in ("trl", "art")}
    for side, mine in rewards.items():
        means = " ".join(f"{statistics.fmean(r[n] for r in mine):9.3f}" for n in updates)
        rows.append(f"{side:8} {'mean':>5} {means}")
    pairs = list(zip(rewards["art"], rewards["trl"], strict=True))
    if len(pairs) > 1:
        gaps = {n: [ours[n] - theirs[n] for ours, theirs in pairs] for n in updates}
        means = " ".join(f"{statistics.fmean(gaps[n]):+9.3f}" for n in updates)
        errors = " ".join(f"{statistics.stdev(gaps[n]) / len(pairs) ** 0.5:9.3f}" for n in updates)
        rows += [f"{'art-trl':8} {'mean':>5} {means}", f"{'':8} {'error':>5} {errors}"]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
