"""Files of an env in an agent's folder: validation, writing and reading back.

The program that the policy drives may have written into the folder meanwhile. Anything read there
may be a link to a user's file, a pipe that never ends, or larger than memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from art_cli.envs.place import place_of
from art_cli.errors import UsageError

MOST_FILES, MOST_BYTES = 10_000, 64 * 2**20  # per episode
LONGEST_NAME = 255  # bytes, of a file or a folder


def checked_files(env_class: type, given: Any) -> dict[str, bytes]:
    """Return the content of the files from `files()`. Raises UsageError with the method's place."""

    def refuse(why: str) -> UsageError:
        return UsageError(f"{place_of(env_class, 'files')}{why}")

    if not isinstance(given, Mapping):
        raise refuse(f"files() returned {given!r:.200}; expected a dict of paths to text or bytes")
    if len(given) > MOST_FILES:
        raise refuse(f"files() gave {len(given)} files; at most {MOST_FILES} can be written")
    found: dict[str, bytes] = {}
    for name, content in given.items():
        if why := _wrong_name(name):
            raise refuse(f"files() gave the path {name!r:.200}, {why}")
        if not isinstance(content, str | bytes):
            raise refuse(f"files() gave {content!r:.200} for {name!r}; expected text or bytes")
        try:
            found[name] = content.encode() if isinstance(content, str) else bytes(content)
        except UnicodeEncodeError:
            raise refuse(f"files() gave a text for {name!r} that UTF-8 cannot hold") from None
    if (size := sum(map(len, found.values()))) > MOST_BYTES:
        raise refuse(f"files() gave {size} bytes; at most {MOST_BYTES} can be written")
    folders = {str(folder) for name in found for folder in Path(name).parents}
    if both := next((name for name in found if str(Path(name)) in folders), None):
        raise refuse(f"files() gave {both!r} as a file, and another file below it")
    return found


def _wrong_name(name: Any) -> str:
    """Return the problem with a path, or "" if it may be written."""
    if not isinstance(name, str) or not name:
        return "which is no path"
    try:
        parts = [part.encode() for part in name.split("/")]
    except UnicodeEncodeError:
        return "which UTF-8 cannot hold"
    if name.startswith("/"):
        return "which is absolute; expected one below the episode's folder"
    if {b"", b".", b".."} & set(parts) or "\0" in name:
        return "which has an empty part, `.` or `..` in it; expected a/b.txt"
    if len(name.encode()) > 1024 or max(map(len, parts)) > LONGEST_NAME:
        return "which is too long for a file"
    return ""


def write_files(env_class: type, folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder, creating their parent folders. Raises UsageError."""
    for name, content in files.items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        except OSError as e:
            why = f"{place_of(env_class, 'files')}files() gave {name!r}, which cannot be written: "
            raise UsageError(f"{why}{e.strerror}") from None


def read_below(folder: Path, name: str, limit: int = MOST_BYTES) -> bytes | None:
    """Return the content of a file below a folder, or None if there is no such file.

    A symbolic link, at any part of the path, counts as no file, and so do a folder, a pipe, a
    device, and a file of more than `limit` bytes.
    """
    *folders, last = Path(name).parts or ("",)
    if not last or last == ".." or ".." in folders or name.startswith("/"):
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        at = os.open(folder, flags | os.O_DIRECTORY)
        for part in (*folders, last):
            try:
                below = os.open(part, flags, dir_fd=at)
            finally:
                os.close(at)
            at = below
    except (OSError, ValueError):
        return None
    status = os.fstat(at)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        os.close(at)
        return None
    with open(at, "rb", buffering=0) as file:
        content = b""
        while chunk := file.read(limit + 1 - len(content)):  # it may grow meanwhile
            content += chunk
        return content if len(content) <= limit else None
