"""Rows become scenarios, or a UsageError with FILE:LINE, what was expected and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from art_cli import Scenario, Split, UsageError, seed_of, tell
from art_envs.tasks import columns
from art_envs.tasks.grading import same_choice, why_not_gradable
from art_envs.tasks.rows import HUB, Row, read_rows
from art_envs.tasks.settings import TaskSettings
from art_envs.tasks.splits import NAMES, by_hash, key_of, leaks

MOST_CHOICES = 50  # where the targets themselves are the options
MOST_SHOWN = 10  # rows with a mistake
TOLD = 500  # rows between two lines of progress
TAGS = ("level", "kind")  # columns by which `art eval` breaks its results down
Placed = dict[Split, list[tuple[str, Row]]]  # the rows of each split, each with its key


def scenarios_of(cfg: TaskSettings, split: Split) -> list[Scenario]:
    """Return the scenarios of a split. Raise UsageError.

    Each has in its data what is asked (`input`), what is right (`targets`), the options (`choices`)
    and a whole answer (`solution`), where there are these.
    """
    own = TaskSettings(**{f.name: getattr(cfg, f.name) for f in fields(TaskSettings)})
    stamps = tuple(_stamp(source) for source in (own.data, own.val_data, own.test_data))
    found = _all(own, stamps)
    for each in found:  # of all splits at once: `art validate` looks at train alone
        if not found[each] and (each == "train" or getattr(own, f"{each}_share")):
            raise UsageError(_why_empty(own, each))
    return found[split]


def _stamp(source: str | None) -> tuple[int, int] | None:
    if source is None or source.startswith(HUB) or not Path(source).is_file():
        return None
    stat = Path(source).stat()
    return stat.st_mtime_ns, stat.st_size


def _why_empty(cfg: TaskSettings, split: Split) -> str:
    if split == "train":
        return f"{cfg.data}: all of its rows are held out, so that there is none to train on"
    if source := getattr(cfg, f"{split}_data"):
        return f"{source}: all of its rows are in test too; remove them there"
    share = getattr(cfg, f"{split}_share")
    return (
        f"{cfg.data}: no row falls to {split} by env.args.{split}_share={share:g}; give a larger "
        f"share (or 0, if you need no {split}), a file of its own (env.args.{split}_data), or more "
        "rows"
    )


@lru_cache(maxsize=4)  # a run asks for each split, and `art envs check` several times
def _all(cfg: TaskSettings, stamps: object) -> dict[Split, list[Scenario]]:
    placed = _placed(cfg)
    choices = _common_choices(cfg, [row for found in placed.values() for _, row in found])
    out: dict[Split, list[Scenario]] = {split: [] for split in placed}
    done, total = 0, sum(map(len, placed.values()))
    mistakes: list[tuple[int, str]] = []
    for split, found in placed.items():
        for key, row in found:
            done += 1
            try:
                data = _data(cfg, row, choices)
            except UsageError as e:
                mistakes.append((row.number, str(e)))
                continue
            id, seed = f"{split}-{row.number}", seed_of(split, row.number, key)
            out[split].append(Scenario(id=id, split=split, seed=seed, data=data))
            if done % TOLD == 0 or done == total:
                tell(f"reading {cfg.data}", done, total)
    if mistakes:
        more = len(mistakes) - MOST_SHOWN
        lines = [line for _, line in sorted(mistakes)[:MOST_SHOWN]] + [
            f"... and {more} more of {total} rows"
        ] * (more > 0)
        raise UsageError("\n".join(lines))
    _tell_contradictions(placed, out)
    return out


def _tell_contradictions(placed: Placed, made: dict[Split, list[Scenario]]) -> None:
    """Report rows that repeat a question with a different target."""
    first: dict[str, tuple[str, Any]] = {}
    clashes: list[str] = []
    for split, rows in placed.items():
        for (key, row), scenario in zip(rows, made[split], strict=True):
            targets = scenario.data.get("targets"), scenario.data.get("choices")
            place, others = first.setdefault(key, (row.place, targets))
            if others != targets:
                clashes.append(f"{place} and {row.place}")
    if clashes:
        tell(f"{len(clashes)} rows have another target than the same question before: {clashes[0]}")


def _placed(cfg: TaskSettings) -> Placed:
    """Return the rows of each split. What is held out is in no other."""
    files: dict[Split, str] = {}
    if cfg.val_data is not None:
        files["val"] = cfg.val_data
    if cfg.test_data is not None:
        files["test"] = cfg.test_data
    out: Placed = {"train": [], "val": [], "test": []}
    named: dict[Split, list[tuple[str, Row]]] = {"train": [], "val": [], "test": []}
    for row in read_rows(cfg.data):
        named[_named_split(cfg, row)].append((_key(cfg, row), row))
    for split, source in files.items():
        if named[split]:
            place = named[split][0][1].place
            raise UsageError(
                f"{place}: the column {cfg.split!r} says {split}, and env.args.{split}_data is "
                "given too; remove one of them"
            )
        named[split] = [(_key(cfg, row), row) for row in read_rows(source)]
    val = 0.0 if named["val"] else cfg.val_share
    test = 0.0 if named["test"] else cfg.test_share
    out["val"], out["test"] = named["val"], named["test"]
    for key, row in named["train"]:
        out[by_hash(key, val, test)].append((key, row))
    return _without_leaks(out)


def _named_split(cfg: TaskSettings, row: Row) -> Split:
    if cfg.split is None:
        return "train"
    said = columns.text_of(row, cfg.split, "split")
    split = NAMES.get(said.strip().lower())
    if split is None:
        raise UsageError(f"{row.place}: {cfg.split!r} is {said!r}; expected train, val or test")
    return split


def _key(cfg: TaskSettings, row: Row) -> str:
    opening = columns.opening_of(row, cfg.input)
    if not isinstance(opening, str):
        opening = "\n".join(m["content"] for m in opening if m["role"] != "system")
    return key_of(opening)


def _without_leaks(placed: Placed) -> Placed:
    found = leaks({split: [key for key, _ in rows] for split, rows in placed.items()})
    for split, places in found.items():
        if places:
            first = placed[split][min(places)][1].place
            tell(f"{len(places)} rows of {split} left out, for they are held out too: {first}, ...")
    return {
        split: [each for i, each in enumerate(rows) if i not in found[split]]
        for split, rows in placed.items()
    }


def _common_choices(cfg: TaskSettings, rows: Sequence[Row]) -> list[str] | None:
    """Return the options of all rows; None where each has its own, or none are needed."""
    if cfg.grade != "choice" or isinstance(cfg.choices, str):
        return None
    if cfg.choices is not None:
        return list(cfg.choices)
    assert cfg.target is not None
    spelled: dict[str, Counter[str]] = {}
    for row in rows:
        for text in columns.texts_of(row, cfg.target, "target"):
            spelled.setdefault(same_choice(text), Counter())[" ".join(text.split())] += 1
    found = [max(sorted(counts), key=counts.__getitem__) for counts in spelled.values()]
    several = [sorted(counts) for counts in spelled.values() if len(counts) > 1]
    if several:
        shown = ", ".join(map(repr, several[0]))
        tell(f"{len(several)} options are spelled in several ways, which count as one: {shown}")
    if len(found) > MOST_CHOICES:
        raise UsageError(
            f"{cfg.data}: {len(found)} different targets in {cfg.target!r} are too many to choose "
            "from; name the options in env.args.choices, or take grade: exact"
        )
    return sorted(found)


def _data(cfg: TaskSettings, row: Row, choices: list[str] | None) -> dict[str, Any]:
    data: dict[str, Any] = {}
    shown = ""
    if isinstance(cfg.choices, str):
        choices, texts = columns.options_of(row, cfg.choices)
        shown = "\n".join(f"{c}. {t}" for c, t in zip(choices, texts, strict=True))
        data["targets"] = [_chosen(cfg, row, choices, texts)]
    elif cfg.target is not None:
        data["targets"] = columns.texts_of(row, cfg.target, "target")
        if choices:
            options = {same_choice(choice): choice for choice in choices}
            data["targets"] = [options.get(same_choice(t), t) for t in data["targets"]]
    data["input"] = _input(cfg, row, shown or ", ".join(choices or ()))
    if choices:
        data["choices"] = choices
    if cfg.solution is not None:
        data["solution"] = columns.text_of(row, cfg.solution, "solution")
    data |= {tag: row.values[tag] for tag in TAGS if isinstance(row.values.get(tag), str | int)}
    for target in data.get("targets", ()):
        if why := why_not_gradable(cfg.grade, target, choices):
            raise UsageError(f"{row.place}: the target {target!r:.200} cannot be graded: {why}")
    return data


def _chosen(cfg: TaskSettings, row: Row, labels: list[str], texts: list[str]) -> str:
    assert cfg.target is not None
    target = columns.cell(row, cfg.target, "target")
    label = columns.chosen(target, labels, texts)
    if label is None:
        raise UsageError(
            f"{row.place}: the target {target!r:.200} is none of the options: expected one of "
            f"{', '.join(labels)}, the text of one, or its number from 0"
        )
    return label


def _input(cfg: TaskSettings, row: Row, shown: str) -> Any:
    if cfg.prompt is not None:
        text = columns.filled(cfg.prompt, row, shown)
        placed = columns.has_place_for_choices(cfg.prompt)
    else:
        opening = columns.opening_of(row, cfg.input)
        if not isinstance(opening, str):
            return opening
        text, placed = opening, False
    return f"{text}\n{shown}" if isinstance(cfg.choices, str) and not placed else text
