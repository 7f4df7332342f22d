"""Cache of judge answers on disk, by a hash of the request, so repeated runs pay only once.

Each answer is one file, written atomically, so any number of processes may share a folder, and any
of them may be killed.
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
    """Judge answers by key, which is a hash of the request."""

    def __init__(self, folder: Path | None) -> None:
        """Without a folder, nothing is stored or found."""
        self._folder = folder
        self._secret = _secret(folder) if folder else secrets.token_bytes(32)

    def id(self, content: bytes) -> str:
        """Return an id for a trajectory in one call that the trajectory's author cannot predict.

        It derives from the content and a secret of this machine, so the same call has the same text
        again.
        """
        return "t-" + hmac.new(self._secret, content, hashlib.sha256).hexdigest()[:16]

    def key(self, *asked: Any) -> str:
        """Return the hash of everything that an answer depends on."""
        text = json.dumps(asked, sort_keys=True, default=str)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

    def get(self, key: str) -> str | None:
        """Return a stored answer, or None. An unreadable file counts as missing."""
        if self._folder is None:
            return None
        try:
            answer = json.loads(self._file(key).read_bytes())["answer"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return answer if isinstance(answer, str) else None

    def put(self, key: str, answer: str) -> None:
        """Store an answer that proved usable. Errors such as a full disk turn the cache off."""
        if self._folder is None:
            return
        file = self._file(key)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Not flushed to disk, which would take longer than all other work for a group. A file
            # damaged by a power failure counts as missing.
            temporary.write_text(json.dumps({"answer": answer}), encoding="utf-8")
            os.replace(temporary, file)
        except OSError:
            self._folder = None

    def _file(self, key: str) -> Path:
        assert self._folder
        return self._folder / key[:2] / f"{key}.json"


def _secret(folder: Path) -> bytes:
    """Return the secret of this machine, created once. Concurrent processes use the first one."""
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
                os.link(made, file)  # fails if another process was first
            else:
                os.replace(made, file)  # the old one is damaged
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
