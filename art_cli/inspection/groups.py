"""The groups of a step: lookup by the user's input, and a summary in numbers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from art_cli.errors import UsageError, did_you_mean
from art_cli.runs.directory import RunDir
from art_cli.system.untrusted import is_number
from art_cli.view.episodes import group_of, read_step, step_files

Row = dict[str, Any]
SPLITS = ("train", "val", "test")


@dataclass(slots=True, kw_only=True)
class StepGroups:
    """The trajectories of a step's file, group by group."""

    split: str
    step: int
    groups: dict[int, list[Row]]  # by number
    damage: str  # the unreadable part of the file; empty: none

    def find(self, wanted: str) -> int:
        """Return the number of a group, given its number or scenario. Raise UsageError if none
        fits.
        """
        if wanted.isdecimal() and int(wanted) in self.groups:
            return int(wanted)
        named: dict[str, int] = {}
        for number, rows in self.groups.items():
            named.setdefault(scenario_of(rows), number)
        if wanted in named:
            return named[wanted]
        raise UsageError(
            f"step {self.step} has no {self.split} group {wanted}: there are "
            f"{_ranges(list(self.groups))}, of the scenarios {_some(list(named))}."
            f"{did_you_mean(wanted, named)}"
        )


def open_step(run: RunDir, step: int | None, split: str) -> StepGroups:
    """Read the groups of a step, by default the newest. Raise UsageError if the step has none."""
    if split not in SPLITS:
        raise UsageError(
            f"--split {split}: expected train, val or test.{did_you_mean(split, SPLITS)}"
        )
    files = step_files(run)
    steps = [file.step for file in files if file.split == split]
    wanted = step if step is not None else max(steps, default=0)
    if wanted not in steps:
        raise UsageError(_no_such_step(run, wanted, split, files))
    file = next(f for f in files if (f.split, f.step) == (split, wanted))
    found = read_step(file)
    groups: dict[int, list[Row]] = {}
    for row in found.rows:
        groups.setdefault(group_of(row), []).append(row)
    if not groups:
        raise UsageError(found.damage or f"{file.path} holds no trajectories")
    return StepGroups(split=split, step=wanted, groups=groups, damage=found.damage)


def scenario_of(rows: list[Row]) -> str:
    """Return the scenario id of a group."""
    return str(rows[0].get("scenario_id", "?"))


def rewards_of(rows: list[Row]) -> list[float]:
    """Return the rewards of the siblings that have one."""
    return [row["reward"] for row in rows if is_number(row.get("reward"))]


def summary(number: int, rows: list[Row]) -> dict[str, Any]:
    """Return the numbers of a group."""
    rewards = rewards_of(rows)
    return {
        "group": number,
        "scenario_id": scenario_of(rows),
        "reward": statistics.fmean(rewards) if rewards else None,
        "rewards": rewards,
        "spread": max(rewards) - min(rewards) if len(rewards) > 1 else None,
        "failed": sum(row.get("reward") is None and bool(row.get("error")) for row in rows),
    }


def _no_such_step(run: RunDir, step: int, split: str, files: list[Any]) -> str:
    there = {name: _ranges([file.step for file in files if file.split == name]) for name in SPLITS}
    parts = [f"{name} has {steps}" for name, steps in there.items() if steps]
    what = f"no {split} trajectories of step {step} in {run.root}"
    if not parts:
        return f"{what}: it has none at all yet"
    other = next((file.split for file in files if file.step == step), "")
    return f"{what}: {', '.join(parts)}{f' (--split {other})' if other else ''}"


def _ranges(numbers: list[int]) -> str:
    """Return numbers as ranges: `0 to 3, 8`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(
        f"{part[0]} to {part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in found
    )


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:3])} and others" if len(names) > 4 else ", ".join(names)
