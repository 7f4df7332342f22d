"""The origin of a run: versions, the code of env and agent, data files, the commit.

Each start appends a line to made-with.jsonl, so that runs can be compared by more than their
configs. A failure to determine something never fails a run; the value is null instead.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from art_cli.config.load import LoadedExperiment
from art_cli.config.yaml import leaves
from art_cli.envs.digest import code_digest
from art_cli.evaluation.identity import agent_digest
from art_cli.rollout.env_class import env_of
from art_cli.runs.directory import RunDir
from art_cli.system.files import json_line, read_lines, to_append

PACKAGES = ("art-cli", "torch", "transformers", "peft", "tokenizers", "vllm", "litellm", "numpy")
GIT_SECONDS = 5.0
CODE = {  # the keys that name it: the first that is set
    "env code": ("env.use",),
    "agent code": ("agent.function", "agent.use"),
    "judge code": ("judge.use",),
    "engine code": ("engine.use",),
    "loss code": ("train.loss",),
    "advantage code": ("train.advantage",),
    "curriculum code": ("train.curriculum",),
}
LARGEST = 256 << 20  # bytes of a file above which its content is not hashed


def note_start(run: RunDir, loaded: LoadedExperiment) -> None:
    """Record the code and versions of the run from here on. Never raises."""
    row = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **_made_with(loaded)}
    try:
        with open(run.made_with, "a", encoding="utf-8", opener=to_append) as file:
            file.write(json_line(row))
    except OSError:  # a full disk is reported by more important writes
        return


def made_with(run: RunDir) -> dict[str, str]:
    """Return the record of the run's last start, flattened: `package torch` -> `2.13.0`.

    Empty if the run has no record, because an older version of art made it.
    """
    rows, _ = read_lines(run.made_with)
    if not rows:
        return {}
    found: dict[str, str] = {}
    for key, value in rows[-1].items():
        if isinstance(value, dict):
            found |= {f"{key} {name}": str(item) for name, item in value.items()}
        elif key != "at":
            found[key] = "unknown" if value is None else str(value)
    return found


def changed_since(run: RunDir, loaded: LoadedExperiment) -> list[str]:
    """Return the code and files of the config that changed since the last start.

    Things without a record, or that cannot be read now, are not compared. Never raises.
    """
    rows, _ = read_lines(run.made_with)
    noted, now = rows[-1] if rows else {}, code_of(loaded)
    values = {".".join(map(str, path)): value for path, value in leaves(loaded.document)}
    for code, keys in CODE.items():
        if named := next(filter(None, map(values.get, keys)), None):
            values[code] = named
    before = {**noted, **_dict(noted.get("file"))}
    return [
        f"{key}: {values[key]}" if key in values else key
        for key, digest in {**now, **now["file"]}.items()
        if key != "file" and digest and before.get(key) not in (None, digest)
    ]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _made_with(loaded: LoadedExperiment) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "package": {name: found for name in PACKAGES if (found := _version(name))},
        **code_of(loaded),
        "commit": _commit(),
    }


def code_of(loaded: LoadedExperiment) -> dict[str, Any]:
    """Return digests of the code and files that the config names. Never raises."""
    cfg = loaded.experiment
    return {
        "env code": _or_none(lambda: code_digest(env_of(cfg.env))),
        "agent code": _or_none(lambda: agent_digest(cfg.agent)),
        "judge code": _or_none(lambda: cfg.judge and _digest(_file_of(cfg.judge.use))),
        "engine code": _or_none(lambda: _digest(_file_of(cfg.engine.use))),
        "loss code": _or_none(lambda: _digest(_file_of(cfg.train.loss))),
        "advantage code": _or_none(lambda: _digest(_file_of(cfg.train.advantage))),
        "curriculum code": _or_none(lambda: _digest(_file_of(cfg.train.curriculum))),
        "file": dict(_files(loaded.document)),
    }


def _file_of(name: str) -> Path:
    """Return the file of FILE.py:NAME, or for another name a path that does not exist."""
    return Path(name.rpartition(":")[0])


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _or_none(find: Callable[[], str | None]) -> str | None:
    try:
        return find()
    except Exception:  # the user's file may be missing, unreadable or not valid Python
        return None


def _files(document: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield a digest of each file that the config names: demonstrations, a rubric, data."""
    for path, value in leaves(document):
        if isinstance(value, str) and len(value) < 4096 and os.path.isfile(value):
            yield ".".join(map(str, path)), _or_none(lambda file=Path(value): _digest(file))


def _digest(file: Path) -> str:
    if file.stat().st_size > LARGEST:
        return f"{file.stat().st_size} bytes"
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]


def _commit() -> str | None:
    """Return the commit of the current directory, and whether it had uncommitted changes."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return None
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}{', with changes' if changed else ''}"


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
