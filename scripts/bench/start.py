"""Measure `art --help` beside a bare start of Python, in user CPU time.

python scripts/bench/start.py                    best of 10 starts of each, one after the other
python scripts/bench/start.py --most 5           exit code 1 where --help takes more than that
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

STARTS = {
    "python -c pass": ("-c", "pass"),
    "art --help": ("-m", "art_cli", "--help"),
    "art --version": ("-m", "art_cli", "--version"),
    "art run --help": ("-m", "art_cli", "run", "--help"),
}


def main() -> None:
    """Print milliseconds and how many bare starts they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--most", type=float, default=None)
    asked = parser.parse_args()
    best = dict.fromkeys(STARTS, float("inf"))
    for _ in range(asked.starts):  # side by side: what else goes on here slows all of them
        for name, words in STARTS.items():
            best[name] = min(best[name], user_seconds(words))
    bare = best["python -c pass"]
    for name, seconds in best.items():
        print(f"{name:<16}{1000 * seconds:6.0f} ms {seconds / bare:6.1f} starts of Python")
    if asked.most is not None and best["art --help"] > asked.most * bare:
        sys.exit(1)


def user_seconds(words: tuple[str, ...]) -> float:
    """User CPU time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


if __name__ == "__main__":
    main()
