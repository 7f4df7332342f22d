"""Run the tests that a change touches: those beside each changed file, and those that import it,
or, where there are none, those of its folder.

    python scripts/touched.py [BASE]      # what differs from BASE, or from the last commit

Arguments behind BASE go to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
MOST = 12  # files that import a changed one; where there are more, those beside it have to do


def main() -> int:
    """Find the tests, and run them."""
    base, *rest = sys.argv[1:] or ["HEAD"]
    found: dict[Path, None] = {}
    for path in changed(base):
        found |= dict.fromkeys(tests_of(path))
    if not found:
        print("no test belongs to what has changed")
        return 0
    names = [str(p.relative_to(ROOT)) for p in found]
    print("\n".join(names), flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "logical", "--dist", "loadfile"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, *rest, *names], cwd=ROOT, env=env).returncode


def changed(base: str) -> list[Path]:
    """Return the files that differ from a commit, new ones too."""

    def git(*words: str) -> list[str]:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def tests_of(path: Path) -> list[Path]:
    """Return the test files that belong to a file."""
    relative = path.relative_to(ROOT)
    if relative.suffix == ".md":
        return sorted((TESTS / "docs").glob("test_*.py"))
    if relative.suffix != ".py":
        return []
    if relative.parts[0] == "tests":
        return [path] if path.name.startswith("test_") else importers(path.stem)
    module = ".".join(relative.with_suffix("").parts)
    beside = TESTS / relative.parent / f"test_{path.name}"
    using = importers(module.removeprefix("envs."))
    found = dict.fromkeys([beside, *(using if len(using) <= MOST else ())])
    return [p for p in found if p.exists()] or around(relative)


def around(relative: Path) -> list[Path]:
    """Return the test files of a folder, or named like it, or of the nearest folder above."""
    place = TESTS / str(relative).replace("envs/art_envs", "envs")
    for folder in place.parents[: len(place.relative_to(TESTS).parts) - 1]:
        named = folder.parent.glob(f"test_{folder.name}*.py")
        if found := sorted(folder.glob("test_*.py")) or sorted(named):
            return found[:MOST]
    return []


def importers(module: str) -> list[Path]:
    """Return the fast test files that name a module."""
    named = re.compile(rf"\b{re.escape(module)}\b")
    package, _, name = module.rpartition(".")
    taken = re.compile(rf"from {re.escape(package)} import .*\b{name}\b")
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "integration" not in path.parts and (named.search(text) or taken.search(text)):
            found.append(path)
    return found


if __name__ == "__main__":
    sys.exit(main())
