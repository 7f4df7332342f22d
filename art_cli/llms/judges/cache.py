"""Answers on disk, by the hash of what was asked: a repeated or resumed run pays nothing twice.

One file an answer, written whole or not at all, so that any number of processes may share a folder
and any of them may be killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any


class AnswerCache:
    """Texts by key."""

    def __init__(self, folder: Path | None) -> None:
        """None: nothing is kept, and nothing is found."""
        self._folder = folder
        self._secret = _secret(folder) if folder else secrets.token_bytes(32)

    def id(self, content: bytes) -> str:
        """Return a name for a trajectory in one call, which nobody who speaks in it can know.

        It follows from the content and a secret of this machine, so that the same call is the same
        text again.
        """
        return "t-" + hmac.new(self._secret, content, hashlib.sha256).hexdigest()[:16]

    def key(self, *asked: Any) -> str:
        """Return the hash of all that an answer depends on."""
        text = json.dumps(asked, sort_keys=True, default=str)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

    def get(self, key: str) -> str | None:
        """Return the answer that was kept. A file that cannot be read is one that is not there."""
        if self._folder is None:
            return None
        try:
            answer = json.loads(self._file(key).read_bytes())["answer"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return answer if isinstance(answer, str) else None

    def put(self, key: str, answer: str) -> None:
        """Keep an answer that has proved usable. A full disk costs the cache, not the run."""
        if self._folder is None:
            return
        file = self._file(key)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Not flushed to the disk, which takes longer than all else that is done for a group: a
            # file that a power cut has spoilt is one that is not there.
            temporary.write_text(json.dumps({"answer": answer}), encoding="utf-8")
            os.replace(temporary, file)
        except OSError:
            self._folder = None

    def _file(self, key: str) -> Path:
        assert self._folder
        return self._folder / key[:2] / f"{key}.json"


def _secret(folder: Path) -> bytes:
    """Made once; of processes that come at the same time, all use the one that was first."""
    file = folder / "secret"
    for _ in range(2):
        kept = _read(file)
        if kept and len(kept) == 32:
            return kept
        made = file.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(secrets.token_bytes(32))
            if kept is None:
                os.link(made, file)  # fails where another was first
            else:
                os.replace(made, file)  # a crash has spoilt the old one
        except OSError:
            continue
        finally:
            with contextlib.suppress(OSError):
                made.unlink()
    return _read(file) or secrets.token_bytes(32)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
