"""A program in place of `art`, which pretends to train: `run ... train.learning_rate=X`.

Its held-out reward rises by the learning rate at each step, in the six steps that it takes, so that
the best of a sweep is known. It saves and ends with SIGINT as `art run` does, and goes on with
--resume. A file `hold` makes it wait after step 2, a file `behind` the learning rates in it after
step 1, until it is stopped. A learning rate above 1 makes it fail, with `hold` once another is
held; one below 1e-6 makes this machine unfit. With --on it is on a cluster: SIGINT lets go of it,
`cancel RUN` ends it. It imports nothing of art, so that it starts at once.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

STEPS = 6


def waits(step: int, given: dict[str, str]) -> bool:
    """Return whether a run is to stay where it is."""
    behind = Path("behind").read_text().split() if Path("behind").exists() else []
    is_behind = given.get("train.learning_rate") in behind
    return (step == 1 and is_behind) or (step == 2 and Path("hold").exists())


def is_held(run: Path) -> bool:
    """Return whether a run has come to the step at which `hold` makes it wait."""
    metrics = run / "metrics.jsonl"
    return metrics.exists() and metrics.read_text().count("\n") > 2


def main() -> int:
    """Train, in a manner of speaking."""
    if sys.argv[1] == "cancel":
        (Path(sys.argv[2]) / "cancelled").touch()
        return 0
    given = dict(w.split("=", 1) for w in sys.argv if "=" in w)
    folder = sys.argv[sys.argv.index("--runs-dir") + 1]
    run = Path(folder) / given["project"] / given["name"]
    rate = float(given.get("train.learning_rate", "0.001"))
    if rate > 1:
        # Where another is held, it is under way by now: one that has just started hears no SIGINT.
        while Path("hold").exists() and not any(map(is_held, Path(folder).glob("*/*"))):
            time.sleep(0.01)
        print("the learning rate is no good")
        return 1
    if rate < 1e-6:
        print("no GPU")
        return 3
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text("{}")
    (run / "calls").open("a").write(f"{json.dumps(sys.argv[2:])}\n")
    stop: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: stop.append(130))
    is_sent = "--on" in sys.argv
    if is_sent:
        cluster = sys.argv[sys.argv.index("--on") + 1]
        (run / "cloud.json").write_text(json.dumps({"job": 1, "cluster": cluster}))
    luck = 1e-4 * int(given["seed"])
    metrics = run / "metrics.jsonl"
    metrics.touch()
    for step in range(len(metrics.read_text().splitlines()), STEPS + 1):
        with metrics.open("a") as file:
            row = {"training_step": step, "val/reward": step * rate + luck, "val/reward_ci": 0.196}
            file.write(json.dumps(row) + "\n")
        while not stop and waits(step, given):
            time.sleep(0.01)
            stop += [1] if (run / "cancelled").exists() else []
        if stop:
            write_status(run, "running" if is_sent else "interrupted", step)
            return stop[0]
    write_status(run, "done", STEPS)
    if is_sent:
        (run / "exit.json").write_text('{"code": 0}')
    return 0


def write_status(run: Path, state: str, step: int) -> None:
    """Write status.json as a run does."""
    row = {"state": state, "step": step, "steps": STEPS, "pid": 1, "updated": "", "message": ""}
    (run / "status.json").write_text(json.dumps(row))


if __name__ == "__main__":
    sys.exit(main())
