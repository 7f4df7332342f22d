"""The configs of a comparison, which differ in how they learn but are measured alike."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from art_cli.config.load import LoadedExperiment
from art_cli.config.yaml import leaves
from art_cli.errors import UsageError
from art_cli.inspection.provenance import code_of

MEASURED = ("env", "eval", "reward", "judge")  # sections that define the held-out reward
GIVEN = ("project", "name", "seed")  # keys that the comparison sets for each run
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A config of the comparison, as arguments of `art run`."""

    letter: str
    label: str  # its differences from the first config
    words: list[str]  # config files and overrides
    is_override: bool = False  # whether it consists of overrides of the first config
    loaded: LoadedExperiment


def read_candidates(
    given: Sequence[str], load: Callable[[list[str]], LoadedExperiment]
) -> list[Contender]:
    """Return the candidates of a command line, one for each word.

    A word is a quoted config file with overrides, or overrides of the first candidate. Raise
    UsageError for fewer than two candidates, equal ones, or ones that are measured differently.
    """
    if not 2 <= len(given) <= len(LETTERS):
        raise UsageError(
            f"{len(given)} to compare; give from 2 to {len(LETTERS)}: config files, or overrides "
            "of the first, e.g. art compare configs/quickstart.yaml train.loss=gspo"
        )
    found: list[Contender] = []
    for letter, text in zip(LETTERS, given, strict=False):
        words = shlex.split(text)
        is_override = bool(found) and not any(os.path.exists(word) for word in words)
        if is_override:
            words = [*found[0].words, *words]
        label, loaded = text if found else Path(words[0]).stem, load(words)
        found.append(
            Contender(
                letter=letter, label=label, words=words, loaded=loaded, is_override=is_override
            )
        )
    for other in found[1:]:
        _check_measured_alike(found[0], other)
    seen: dict[str, Contender] = {}
    for each in found:
        same = seen.setdefault(identity_of(each.loaded), each)
        if same is not each:
            raise UsageError(f"{each.letter} ({each.label}) is the same as {same.letter}")
    return found


def key_of(candidates: Sequence[Contender]) -> str:
    """Return a key of the comparison, computed from its configs and the code that they name."""
    text = "".join(identity_of(each.loaded) for each in candidates)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def identity_of(loaded: LoadedExperiment) -> str:
    """Return a text that identifies a config and the code that it names."""
    own = {path: value for path, value in _flat(loaded).items() if path not in GIVEN}
    return json.dumps([own, code_of(loaded)], sort_keys=True, default=str)


def _check_measured_alike(first: Contender, other: Contender) -> None:
    ours, theirs = _flat(first.loaded), _flat(other.loaded)
    for path in sorted({*ours, *theirs}):
        if path.split(".")[0] in MEASURED and ours.get(path) != theirs.get(path):
            origins = [c.loaded.origins.get(path, "default") for c in (first, other)]
            raise UsageError(
                f"{path} is {ours.get(path)!r} ({origins[0]}) in {first.letter} and "
                f"{theirs.get(path)!r} ({origins[1]}) in {other.letter}: their held-out rewards "
                "would measure different things; make it the same in both"
            )


def _flat(loaded: LoadedExperiment) -> dict[str, object]:
    return {".".join(map(str, path)): value for path, value in leaves(loaded.document)}
