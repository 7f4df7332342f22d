"""Atomic file writes, safe reads of files, and JSON lines that any parser accepts."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Iterator
from gzip import GzipFile
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any

from art_cli.errors import ArtError, PreflightError
from art_cli.system.untrusted import (
    ROW_DEPTH,
    UntrustedValueError,
    is_too_deep,
    read_json,
    wrong_field,
)

LARGEST = 16 << 20  # characters of a text file written by a person
# Limits of a JSON lines file from any source; for a compressed file, of its content.
LONGEST_LINE = 64 << 20  # bytes
MOST_BYTES = 1 << 30
MOST_LINES = 200_000
MOST_NAMED = 20  # damaged lines that are reported for one file

Check = Callable[[dict[str, Any]], list[str]]  # removes wrong fields, returns their names


def open_file(path: Path) -> BufferedReader:
    """Open a file to be read. Raises OSError, also for a pipe or a device, which may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def to_append(path: str, flags: int) -> int:
    """Open a file of a run directory to be written; for use as `opener` of `open`.

    Raises OSError for a pipe, a device, or a link, which may lead to one of the user's own files.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise OSError(error.errno, "it is a link or a pipe, not a file", path) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", path)
    return descriptor


def read_text(path: Path, largest: int | None = LARGEST) -> str:
    """Return the text of a file, without the byte order mark that Windows adds.

    Raises OSError, also for a pipe, a device or a file that is too large, and UnicodeDecodeError.
    """
    with TextIOWrapper(open_file(path), encoding="utf-8-sig") as file:
        text = file.read() if largest is None else file.read(largest + 1)
    if largest is not None and len(text) > largest:
        raise OSError(errno.EFBIG, f"it is longer than {largest >> 20} MiB", str(path))
    return text


def read_small(path: Path) -> str:
    """Return the text of a file that art has written. Raises ArtError if it is something else."""
    try:
        return read_text(path)
    except (OSError, ValueError) as e:
        raise ArtError(f"{path} cannot be read: {e}") from None


def read_object(path: Path, fields: dict[Any, tuple[str, ...]]) -> dict[str, Any]:
    """Return the object in a JSON file, which must have these fields, given by type.

    Raises OSError. Raises ValueError with the reason if the content is invalid.
    """
    value = read_json(read_text(path))
    if not isinstance(value, dict):
        raise UntrustedValueError(f"expected an object, got {type(value).__name__}")
    if wrong := wrong_field(value, fields):
        raise UntrustedValueError(f"its {wrong} is missing, or of another type")
    return value


class Damage:
    """The damaged lines of a file, as messages `file:line why`."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self.is_cut = False  # the rest of the file was not read, because of its size
        self._path = path

    def add(self, number: int, what: str) -> None:
        """Add a message about a line. After MOST_NAMED messages, one more covers all others."""
        if len(self.lines) < MOST_NAMED:
            self.lines.append(f"{self._path}:{number} {what}")
        elif len(self.lines) == MOST_NAMED:
            self.lines.append(f"{self._path}:{number} is damaged, and so may be lines after it")


def lines_of(
    file: BufferedReader | GzipFile, damage: Damage, before: int = 0, most: int = MOST_LINES
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open file with their numbers. `before` lines were read already.

    Lines or files beyond the limits end the iteration and are reported. Raises the errors of
    reading.
    """
    size = 0
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), before + 1):
        size += len(line)
        if len(line) > LONGEST_LINE or size > MOST_BYTES or number > most:
            damage.add(number, f"is left out with all that follows: {_too_much(line, size)}")
            damage.is_cut = True
            return
        yield number, line


def row_of(
    line: bytes,
    number: int,
    damage: Damage,
    check: Check | None = None,
    parse: Callable[[bytes], Any] = json.loads,
) -> dict[str, Any] | None:
    """Return the object in a line of JSON. None if it is empty or damaged, which is reported."""
    if not line.strip():
        return None
    try:
        row = parse(line.rstrip(b"\n"))  # so that an error position stays on this line
        if is_too_deep(row, line):
            raise UntrustedValueError(f"it is nested more than {ROW_DEPTH} deep")
        if not isinstance(row, dict):
            raise UntrustedValueError("it is no object")
        wrong = check(row) if check else []
    except (ValueError, RecursionError) as error:
        damage.add(number, f"is damaged and left out: {_reason(error)}")
        return None
    for each in wrong:
        damage.add(number, f"is read without {each}, which is not what a run writes")
    return row


def _too_much(line: bytes, size: int) -> str:
    if len(line) > LONGEST_LINE:
        return f"the line is longer than {LONGEST_LINE >> 20} MiB"
    if size > MOST_BYTES:
        return f"the file holds more than {MOST_BYTES >> 20} MiB"
    return "the file has too many lines"


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    return str(error) if isinstance(error, UntrustedValueError) else "it cannot be parsed"


def read_lines(
    path: Path, check: Check | None = None, most: int = MOST_LINES
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects in a file of JSON lines, and messages `file:line why` for damaged lines.

    A missing file has no lines. An incomplete last line, as left by a kill, is not damage.
    """
    damage = Damage(path)
    rows: list[dict[str, Any]] = []
    try:
        with open_file(path) as file:
            for number, line in lines_of(file, damage, most=most):
                named = damage if line.endswith(b"\n") else Damage(path)
                if (row := row_of(line, number, named, check)) is not None:
                    rows.append(row)
    except FileNotFoundError:
        pass
    except OSError as error:
        damage.lines.append(f"{path}: cannot be read: {error.strerror}")
    return rows, damage.lines


def ends_torn(path: Path) -> bool:
    """Return whether the last line of a file is incomplete, as left by a kill."""
    try:
        with open_file(path) as file:
            if not file.seek(0, os.SEEK_END):
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


class GrowingLines:
    """Reads a file of JSON lines that another process appends to, each line once."""

    def __init__(self, path: Path, check: Check | None = None, most: int = MOST_LINES) -> None:
        self._path, self._check, self._most = path, check, most
        self._forget(0)

    def _forget(self, inode: int) -> None:
        self._inode, self._end, self._lines = inode, 0, 0
        self._damage = Damage(self._path)

    @property
    def damaged(self) -> list[str]:
        """The messages about damaged lines, as from `read_lines`."""
        return self._damage.lines

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the new objects since the last call, and whether they are all objects of the file.

        They are all if the file was replaced or shortened: `--resume` removes lines.
        """
        rows: list[dict[str, Any]] = []
        try:
            with open_file(self._path) as file:
                now = os.fstat(file.fileno())
                if now.st_ino != self._inode or now.st_size < self._end:
                    self._forget(now.st_ino)
                begins_anew = self._end == 0
                if self._damage.is_cut:
                    return [], False
                file.seek(self._end)
                for number, line in lines_of(file, self._damage, self._lines, self._most):
                    if not line.endswith(b"\n"):
                        break
                    self._end, self._lines = self._end + len(line), number
                    if (row := row_of(line, number, self._damage, self._check)) is not None:
                        rows.append(row)
        except OSError as error:
            self._forget(0)
            if not isinstance(error, FileNotFoundError):
                self._damage.lines.append(f"{self._path}: cannot be read: {error.strerror}")
            return [], True
        return rows, begins_anew


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace `path` atomically.

    Raises ArtError if it cannot be written (full disk, no permission). The old file is then
    unchanged, and no temporary file is left.
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
    """Return whether `file` exists and is not the same file as `this`."""
    try:
        return not os.path.samefile(file, this)
    except OSError:
        return False


def cache_folder(name: str) -> Path:
    """Return the cache folder of this name, shared by all runs of a user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "art" / name


def json_line(value: dict[str, Any]) -> str:
    """Return one line of strict JSON, which any parser accepts: NaN and infinity become null."""
    return strict_json(value) + "\n"


def strict_json(value: Any, separators: tuple[str, str] | None = None) -> str:
    """Return strict JSON, which any parser accepts: NaN and infinity become null."""
    try:
        return json.dumps(value, allow_nan=False, default=str, separators=separators)
    except ValueError:
        finite = _finite(value)
        return json.dumps(finite, allow_nan=False, default=str, separators=separators)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path: Path) -> None:
    """Create a folder and its parents. Raises PreflightError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(f"cannot make the folder {path}: {error.strerror}.") from error
