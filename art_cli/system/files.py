"""Files that are there whole or not at all, and lines of JSON that every reader takes."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from art_cli.errors import ArtError, PreflightError

LARGEST = 16 << 20  # characters of a text that a person wrote


def read_text(path: Path, largest: int | None = LARGEST) -> str:
    """Return the text of a file that a user names, without the mark that Windows begins it with.

    Raise OSError, also for a pipe or a device, which may never end, and for what is too large to be
    meant; UnicodeDecodeError.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    with open(path, encoding="utf-8-sig") as file:
        text = file.read() if largest is None else file.read(largest + 1)
    if largest is not None and len(text) > largest:
        raise OSError(errno.EFBIG, f"it is longer than {largest >> 20} MiB", str(path))
    return text


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects in a file of JSON lines, and which lines are damaged: `file:line: why`.

    A file that is not there has no lines. A kill may tear the last line: that is no damage.
    """
    rows: list[dict[str, Any]] = []
    damaged: list[str] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path}: cannot be read: {error.strerror}"]
    for number, line in enumerate(lines, 1):
        row = parsed(line)
        if isinstance(row, dict):
            rows.append(row)
        elif row is not None and number < len(lines):
            damaged.append(f"{path}:{number}: damaged, and left out")
    return rows, damaged


class GrowingLines:
    """A file of JSON lines that another process appends to: each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget(0)

    def _forget(self, inode: int) -> None:
        self._inode, self._end, self._lines = inode, 0, 0
        self.damaged: list[str] = []  # as of `read_lines`

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the objects that came since the last time, and whether they are all there are.

        They are where the file is another one than then, or shorter: `--resume` takes lines back.
        """
        rows: list[dict[str, Any]] = []
        try:
            with open(self._path, "rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._inode or stat.st_size < self._end:
                    self._forget(stat.st_ino)
                file.seek(self._end)
                new = file.read()
        except OSError as error:
            self._forget(0)
            if not isinstance(error, FileNotFoundError):
                self.damaged = [f"{self._path}: cannot be read: {error.strerror}"]
            return [], True
        whole, begins_anew = new[: new.rfind(b"\n") + 1], self._end == 0
        self._end += len(whole)
        for line in whole.split(b"\n")[:-1]:
            self._lines += 1
            row = parsed(line)
            if isinstance(row, dict):
                rows.append(row)
            elif row is not None:
                self.damaged.append(f"{self._path}:{self._lines}: damaged, and left out")
        return rows, begins_anew


def parsed(line: bytes) -> Any:
    """Return what a line of JSON holds; itself where it is damaged, None where it is empty."""
    try:
        return json.loads(line) if line.strip() else None
    except (ValueError, RecursionError):
        return line


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace `path` whole or not at all.

    Raises ArtError when it cannot be written (full disk, no permission); the old file is then as
    it was and nothing else is left behind.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ArtError(
            f"cannot write {path}: {error.strerror}. The old file is untouched."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def is_another(file: Path, this: Path) -> bool:
    """Return whether `file` is there, and is not the file `this` under another name."""
    try:
        return not os.path.samefile(file, this)
    except OSError:
        return False


def cache_folder(name: str) -> Path:
    """Return where something is kept for all runs of a user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "art" / name


def json_line(value: dict[str, Any]) -> str:
    """Return one line of strict JSON, which every reader takes: NaN and infinity become null."""
    try:
        return json.dumps(value, allow_nan=False, default=str) + "\n"
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path: Path) -> None:
    """Make a folder and those above it. Raises PreflightError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(f"cannot make the folder {path}: {error.strerror}.") from error
