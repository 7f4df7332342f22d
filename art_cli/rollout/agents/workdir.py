"""`agent.workdir`: the working directory of an agent, and its home folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from art_cli.errors import PreflightError

NOT_FOUND = re.compile(
    r"ENOENT|No such file or directory|ModuleNotFoundError|No module named|FileNotFoundError"
    r"|Cannot find (module|package)|ERR_MODULE_NOT_FOUND|can't open file|command not found"
    r"|(cannot|could not) find|does not exist",
    re.I,
)
PYTHON = re.compile(r"(python|pypy)[\d.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    """The folders of an agent."""

    folder: Path  # the agent's own; contains `tmp`, and is removed
    start: Path  # the working directory
    home: Path | None = None  # None: art's own

    @property
    def parts(self) -> Iterator[Path]:
        """The folders that are created in `folder`."""
        return (self.folder / name for name in ("tmp", "work", "home"))


class Workdir:
    """The meaning of `agent.workdir`, relative to the folder in which art was started."""

    def __init__(self, setting: str = "fresh") -> None:
        """Raise PreflightError if the setting names no folder."""
        self._project = Path.cwd()
        self.is_fresh = setting == "fresh"
        self._is_inherited = setting == "inherit"
        self.shared = self._project
        if not self.is_fresh and not self._is_inherited:
            self.shared = self._project / Path(setting).expanduser()
            if not self.shared.is_dir():
                raise PreflightError(
                    f"agent.workdir: there is no folder {setting!r} (seen from {self._project}); "
                    "expected fresh, inherit, or a folder that is there"
                )

    def place(self, folder: Path) -> AgentFolder:
        """Create the folders of an agent in a folder of its own. Return their paths."""
        place = AgentFolder(folder=folder, start=self.shared)
        if self.is_fresh:
            place = AgentFolder(folder=folder, start=folder / "work", home=folder / "home")
        for part in place.parts if self.is_fresh else [folder / "tmp"]:
            part.mkdir()
        return place

    def command(self, words: list[str]) -> list[str]:
        """Return the command with paths that work from any working directory.

        A word, or the value behind `=` in an option, becomes absolute if it names a file or folder
        of the project. `.` is left as is, and means the working directory. A program without a
        slash is found through PATH only.
        """
        if self._is_inherited:
            return words
        program = self._absolute(words[0]) if "/" in words[0] else words[0]
        return [program, *map(self._absolute, words[1:])]

    def _absolute(self, word: str) -> str:
        option, is_option, path = word.partition("=") if word.startswith("-") else ("", "", word)
        if path.startswith(("-", "/")) or Path(path) == Path() or "\0" in path:
            return word
        try:
            is_there = (self._project / path).exists()
        except OSError:  # too long for a path, such as code
            return word
        return f"{option}{is_option}{self._project / path}" if is_there else word

    def environment(self, words: list[str], given: dict[str, str]) -> dict[str, str]:
        """Return variables with which `python -m` still finds the project's modules."""
        if self._is_inherited or not _runs_module(words):
            return {}
        before = given.get("PYTHONPATH")
        return {"PYTHONPATH": f"{self._project}{os.pathsep + before if before else ''}"}

    def hint(self, printed: str) -> str:
        """Return advice for a program that failed because it did not find something, or ""."""
        if self._is_inherited or not NOT_FOUND.search(printed):
            return ""
        where = "a fresh folder with a HOME of its own" if self.is_fresh else str(self.shared)
        return (
            f"\nIt started in {where}; if it looks for a file or a module of the project's, set "
            f"agent.workdir: inherit, which starts it in {self._project}."
        )


def _runs_module(words: list[str]) -> bool:
    """Return whether a command contains `python ... -m MODULE`."""
    pythons = [n for n, word in enumerate(words) if PYTHON.fullmatch(os.path.basename(word))]
    for word in words[pythons[0] + 1 :] if pythons else ():
        if word.endswith(".py"):
            return False  # a script, which has its own options
        if re.match(r"-[A-Za-z]*m", word):
            return True
    return False
