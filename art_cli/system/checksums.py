"""Checksums of a folder's files, in a file that `sha256sum -c` can check."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from art_cli.system.files import open_file, read_text

SUMS = "checksums.sha256"
LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def write_sums(folder: Path) -> None:
    """Write the checksum of each file in a folder. Raises OSError."""
    lines = [f"{_sum(folder / name)}  {name}\n" for name in _names(folder)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def damage(folder: Path, concerns: Callable[[str], bool] = lambda _: True) -> str | None:
    """Return the damage to files selected by `concerns`, or None if they are as written."""
    try:
        known = dict(_read(folder / SUMS))
        names = {name for name in {*_names(folder), *known} if concerns(name)}
        for name in sorted(names):
            if not (folder / name).is_file():
                return f"{name} is missing"
            if name not in known:
                return f"{name} has no line in {SUMS}, so it was not saved with the others"
            if _sum(folder / name) != known[name]:
                return f"{name} is not what was saved (its SHA-256 is not that in {SUMS})"
    except FileNotFoundError:
        return f"it has no {SUMS}"
    except (OSError, ValueError) as e:
        return str(e)
    return None


def seal(folder: Path) -> str:
    """Return the checksum of a folder's checksums, which identifies its content. Raises OSError."""
    return _sum(folder / SUMS)


def foreign(folder: Path, known_seal: str | None) -> str | None:
    """Return a description of content that does not belong to the seal, or None.

    Files may be missing, because an interrupted removal may have deleted them.
    """
    try:
        if known_seal is None or folder.is_symlink() or seal(folder) != known_seal:
            return f"its {SUMS} is not the one that was written"
        known = dict(_read(folder / SUMS))
        for parent, folders, names in os.walk(folder):
            links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
            for name in (*links, *names):
                path = Path(parent, name)
                inside = path.relative_to(folder).as_posix()
                if inside != SUMS and (path.is_symlink() or known.get(inside) != _sum(path)):
                    return f"{inside} is not what was written"
    except (OSError, ValueError) as e:
        return f"it has no {SUMS}" if isinstance(e, FileNotFoundError) else str(e)
    return None


def remove_sealed(folder: Path) -> None:
    """Remove a folder without `foreign` content. Its checksums are removed last.

    Raises OSError.
    """
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            if Path(parent, name) != folder / SUMS:
                os.unlink(os.path.join(parent, name))
        if Path(parent) != folder:
            os.rmdir(parent)
    (folder / SUMS).unlink()
    folder.rmdir()


def _read(file: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = read_text(file).split("\n")  # a name may hold U+2028
    except UnicodeDecodeError as e:
        number = e.object[: e.start].count(b"\n") + 1
        raise ValueError(f"{file.name}:{number} is no checksum: it is not UTF-8") from None
    for n, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{file.name}:{n} is no checksum")
        yield found[2], found[1]


def _names(folder: Path) -> list[str]:
    """Return the relative paths of all files. Hidden files, which systems create, are skipped."""
    found = (p.relative_to(folder) for p in sorted(folder.rglob("*")) if p.is_file())
    return [p.as_posix() for p in found if p.name != SUMS and not p.name.startswith(".")]


def _sum(file: Path) -> str:
    with open_file(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
