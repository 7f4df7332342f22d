"""Record a run as docs/run.svg: what a terminal shows a while before the end, and at the end.

    pip install pyte                      # the terminal
    python scripts/picture.py             # runs configs/quickstart.yaml, about a minute

The run is made in a temporary folder. `--at STEP` says which step the first picture is of.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pyte  # pyright: ignore[reportMissingImports]
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
COLUMNS, LINES = 96, 60


def main() -> None:
    """Run `art run` on a terminal of our own, and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", nargs="?", default="configs/quickstart.yaml")
    parser.add_argument("--at", type=int, default=27)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "run.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # a run like a newcomer's, SFT and all
        before, after = record(args.config, Path(folder), args.at)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    for part in (f"$ art run {args.config}", *before, "", "...", "", *after):
        console.print(part, no_wrap=True, crop=True)
    svg = console.export_svg(title="art run")
    args.to.write_text(re.sub(r"\s+$", "", svg, flags=re.M) + "\n", encoding="utf-8")


def record(config: str, folder: Path, step: int) -> tuple[list[Text], list[Text]]:
    """Return the lines on the terminal at a step, and at the end."""
    (folder / "configs").symlink_to(ROOT / "configs")
    art = Path(sys.executable).with_name("art")
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    env = {k: v for k, v in os.environ.items() if k != "CI"} | {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "OMP_NUM_THREADS": "1",
    }
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    before: list[Text] = []
    with subprocess.Popen(
        [art, "run", config], cwd=folder, env=env, stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        while True:
            try:
                stream.feed(os.read(ours, 65536))
            except OSError:  # the other end is closed
                break
            shown = "\n".join(screen.display)  # SFT counts its batches, too
            if not before and re.search(rf"^step\b.*\b{step}/\d+", shown, re.M):
                time.sleep(0.3)
                before = lines_of(screen)
        if process.wait():
            sys.exit("\n".join(screen.display))
    return before, lines_of(screen)


def lines_of(screen: pyte.Screen) -> list[Text]:
    """Return what a terminal shows, with its colours, without the empty lines around it."""
    lines = []
    for y in range(screen.lines):
        line = Text()
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            line.append(cell.data or " ", _style(cell))
        line.rstrip()
        lines.append(line)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _style(cell: pyte.screens.Char) -> str:
    words = [word for word in ("bold", "italics", "reverse") if getattr(cell, word)]
    if cell.fg != "default":
        words.append(f"#{cell.fg}" if re.fullmatch(r"[0-9a-f]{6}", cell.fg) else cell.fg)
    return " ".join(words).replace("italics", "italic").replace("brown", "yellow")


if __name__ == "__main__":
    main()
