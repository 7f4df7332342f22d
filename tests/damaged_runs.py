"""Run directories from elsewhere, each with one thing in it that no run has written."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shown_runs import add_step, make_run, trajectory, write_step

Damage = Callable[[Path], None]  # takes the run directory

DEEP = 100_000
ODD: tuple[Any, ...] = (
    *(10**400, -(10**400), 10**18, 1e308, float("nan"), float("inf"), 1.5, -1, True, None),
    *("text", "", "\ud800", [], [[]], {}, {"a": {}}, [None], ["text"], [{}], [10**400]),
    json.loads("[" * 300 + "]" * 300),
)
FEW_ODD: tuple[Any, ...] = (10**400, float("nan"), "\ud800", [{}], -1)
EPISODE = (
    *("step", "split", "group", "index", "scenario_id", "seed", "scenario", "reward"),
    *("advantage", "turn_advantages", "reward_parts", "metrics", "stop_reason", "truncated"),
    *("error", "traceback", "crash"),
    *("judge_context", "logs", "num_turns", "num_calls", "num_sampled", "policy_versions"),
    *("steps", "messages", "side_conversations", "sequences"),
)
PARTS = {
    "metrics": ("success", "invalid_actions"),
    "reward_parts": ("env", "judge", "cost", "is_gated", "explanation"),
    "scenario": ("answer", "level"),
    "steps": ("turn", "tool", "arguments", "said", "result", "is_error"),
    "messages": ("role", "content", "name", "tool_calls", "is_error"),
    "sequences": ("ids", "mask", "engine_logprobs", "begins", "constrained"),
}
METRICS = (
    *("training_step", "train/reward", "val/reward", "val/reward_ci", "data/groups", "x/own"),
    *("data/groups_zero_variance", "data/curriculum_explored", "data/tokens_sampled"),
    *("loss/entropy", "loss/logprob_gap", "time/step_s", "costs/judge_usd", "judge/first_gain"),
)
STATUS = ("state", "step", "steps", "pid", "updated", "message")
JUDGEMENT = ("step", "scenario_id", "scores", "explanations")
LINES = ("metrics.jsonl", "costs.jsonl", "made-with.jsonl", "judgements/judge.jsonl")
FILES = (
    *LINES,
    *("status.json", "config.yaml", "run.lock", "logs/run.log", "cloud.json", "exit.json"),
    *("trajectories/train-000002.jsonl.gz", "trajectories/val-000002.jsonl.gz"),
    *("deployments/merged-x/deployment.json", "base/tokenizer.json", "run.id"),
    *("checkpoints/2/progress.json", "checkpoints/2/checksums.sha256"),
)


def make_good(run: Path) -> Path:
    """Make a small run that has every file which commands read."""
    make_run(run, steps=2, groups=2, size=2, scenarios=4)
    for step in range(3, 9):
        add_step(run, step, groups=1, size=2)
    for name, text in {
        "config.yaml": "env: {use: none}\nmodel: {base: none}\ntrain: {steps: 8}\n",
        "costs.jsonl": '{"usd": 0.1}\n',
        "made-with.jsonl": '{"at": "", "python": "3.11", "package": {"torch": "2"}}\n',
        "judgements/judge.jsonl": json.dumps(judgement()) + "\n",
        "logs/run.log": "one\ntwo\n",
        "run.id": "r-1\n",
        "run.lock": "{}\n",
    }.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(text)
    return run


def judgement(**changes: Any) -> dict[str, Any]:
    """Return a line that `art judge rescore` may have written."""
    row = {"step": 2, "scenario_id": "train-0", "scores": [0.5, 1], "explanations": ["a", "b"]}
    return row | changes


def text_of(row: dict[str, Any]) -> str:
    """Return JSON as Python writes it: with NaN, and half a surrogate pair as an escape."""
    return json.dumps(row)


def _odd_metrics(name: str) -> Damage:
    def write(run: Path) -> None:
        with open(run / "metrics.jsonl", "a") as file:
            for odd in ODD:
                row = {"training_step": 8, "train/reward": 0.5, "data/groups": 4, name: odd}
                file.write(text_of(row) + "\n")

    return write


def _odd_file(file: str, good: dict[str, Any], name: str, odd: Any) -> Damage:
    def write(run: Path) -> None:
        (run / file).parent.mkdir(exist_ok=True)
        (run / file).write_text(text_of(good | {name: odd}) + "\n")

    return write


def _odd_judgement(name: str) -> Damage:
    def write(run: Path) -> None:
        lines = [text_of(judgement(**{name: odd})) for odd in (*ODD, [1, "x"], [10**400, 1])]
        (run / "judgements" / "judge.jsonl").write_text("\n".join(lines) + "\n")

    return write


def _odd_episode(change: Callable[[int, Any], dict[str, Any]]) -> Damage:
    """Write a step of groups in which one sibling of two is odd, and such an evaluation."""

    def write(run: Path) -> None:
        for step, split in ((2, "train"), (0, "val"), (2, "val"), (8, "train")):
            rows = []
            for group, odd in enumerate(ODD):
                rows.append(trajectory(step, split, group, 0))
                rows.append(trajectory(step, split, group, 1) | change(group, odd))
            write_step(run, step, split, rows)

    return write


def _odd_field(name: str) -> Damage:
    return _odd_episode(lambda _, odd: {name: odd})


def _odd_part(name: str, part: str) -> Damage:
    def change(group: int, odd: Any) -> dict[str, Any]:
        whole = trajectory(2, "train", group, 1)[name]
        if isinstance(whole, dict):
            return {name: whole | {part: odd}}
        return {name: [*whole[:-1], whole[-1] | {part: odd}]}

    return _odd_episode(change)


def contents() -> dict[str, Damage]:
    """Return damage by its name: a right kind of file with a wrong value in it."""
    status = {"state": "done", "step": 2, "steps": 2, "pid": 1, "updated": "", "message": ""}
    found: dict[str, Damage] = {}
    for name in METRICS:
        found[f"metrics.jsonl {name}"] = _odd_metrics(name)
    for name in STATUS:
        for n, odd in enumerate(FEW_ODD):
            found[f"status.json {name} {n}"] = _odd_file("status.json", status, name, odd)
    for n, odd in enumerate(FEW_ODD):
        found[f"exit.json {n}"] = _odd_file("exit.json", {}, "code", odd)
        found[f"run.lock {n}"] = _odd_file("run.lock", {}, "pid", odd)
        found[f"made-with.jsonl {n}"] = _odd_file("made-with.jsonl", {}, "env code", odd)
    for name in JUDGEMENT:
        found[f"judgements {name}"] = _odd_judgement(name)
    for name in EPISODE:
        found[f"trajectories {name}"] = _odd_field(name)
    for name, parts in PARTS.items():
        for part in parts:
            found[f"trajectories {name}.{part}"] = _odd_part(name, part)
    return found


def _bytes(content: bytes) -> Callable[[Path], None]:
    return lambda path: _void(path.write_bytes(content))


def _void(_: object) -> None:
    return None


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 30)


def _bomb(line: bytes) -> Callable[[Path], None]:
    """Return what writes 4 GiB of a repeated line, compressed to a few MiB."""

    def write(path: Path) -> None:
        block = line * ((1 << 20) // len(line))
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        head = packer.compress(block * 16) + packer.flush(zlib.Z_FULL_FLUSH)
        again = packer.compress(block * 16) + packer.flush(zlib.Z_FULL_FLUSH)
        path.write_bytes(head + again * 256)

    return write


YAML_BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
)
KINDS: dict[str, Callable[[Path], None]] = {
    "empty": _bytes(b""),
    "half a line": _bytes(b'{"training_step": 1, "train/rew'),
    "a huge number": _bytes(b'{"a": 1' + b"0" * 400 + b"}\n"),
    "not UTF-8": _bytes(b'{"a": "\xff\xfe"}\n'),
    "NUL": _bytes(b"\0" * 1000),
    "deep lists": _bytes(b"[" * DEEP + b"\n"),
    "deep objects": _bytes(b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"\n"),
    "deep YAML": _bytes(b"a: " + b"[" * DEEP + b"]" * DEEP + b"\n"),
    "a YAML bomb": _bytes(YAML_BOMB),
    "many short lines": _bytes(b"{}\n" * 1_000_000),
    "a long YAML": _bytes(b"- a\n" * 1_000_000),
    "1 GiB": _sparse,
    "a bomb of zeros": _bomb(b"\0"),
    "a bomb of lines": _bomb(b"{}\n"),
    "a bomb of empty lines": _bomb(b"\n"),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a link to zeros": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a folder": lambda path: path.symlink_to("/proc/self"),
    "deep, compressed": _bytes(gzip.compress(b"[" * DEEP + b"\n" + b'{"a":' * DEEP + b"\n")),
    "another Unicode": _bytes("{}\n".encode("utf-16")),
}


LARGE = ("many short lines", "a long YAML", "1 GiB", "a bomb of zeros", "a bomb of lines")
LARGE = (*LARGE, "a bomb of empty lines")
# One file of each reader: what is large takes seconds to read.
READ_LARGE = ("metrics.jsonl", "config.yaml", "logs/run.log", "status.json")
READ_LARGE = (*READ_LARGE, "trajectories/train-000002.jsonl.gz")


def kinds(file: str) -> Iterator[tuple[str, Damage]]:
    """Yield what may stand in place of a file, by its name."""

    def damage(write: Callable[[Path], None]) -> Damage:
        def put(run: Path) -> None:
            path = run / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            write(path)

        return put

    for name, write in KINDS.items():
        if name not in LARGE or file in READ_LARGE:
            yield f"{file} {name}", damage(write)
