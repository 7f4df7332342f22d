"""A disk cache of generated data, so that a domain is generated only once.

There is one file for each version of the generator's code and its arguments, written atomically:
any number of processes may share the folder, and any of them may be killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def folder() -> Path:
    """Return the cache folder, which all runs of a user share."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "art" / "envs"


def cached(name: str, code: Path, arguments: Any, make: Callable[[], Any]) -> Any:
    """Return the result of `make` (JSON), from disk if the same code has produced it before.

    `code` is the folder of the domain: a change of any file in it, or in this package, invalidates
    the cache. If the disk is not writable, the data is generated each time.
    """
    asked = [_fingerprint(code), _fingerprint(Path(__file__).parent), arguments]
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]
    file = folder() / f"{name}-{key}.json"
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        text = json.dumps(make(), separators=(",", ":"))
    with contextlib.suppress(OSError):
        _write(file, text)
    return json.loads(text)  # the same as a result from disk: lists for tuples, text keys


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        unfinished.write_text(text)
        os.replace(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


@cache
def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
