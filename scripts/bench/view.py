"""Measure the page of `art view` with 10,000 trajectories: seconds, bytes, CPU seconds.

python scripts/bench/view.py                     needs chromium and the extra `view`; some minutes
python scripts/bench/view.py --seconds 0         without the run that goes on
python scripts/bench/view.py --beside CONFIG     a real run, with its page open all the time

A trajectory has 4 turns, 3 calls of tools, some 1,200 tokens and 30 kB. CPU seconds are those of
`art view` and of the whole browser: they say more than wall time where others use the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser import Tab, browser  # noqa: E402  # pyright: ignore[reportMissingImports]
from shown_runs import add_evaluation, metrics_row, trajectory  # noqa: E402  # pyright: ignore[reportMissingImports]

STEPS, GROUPS, SIBLINGS, LONGEST = 100, 10, 10, 1200
DIFFERENT = 8  # steps that are made; the others hold the same under another number
EVERY = 2.0  # seconds, of the run that goes on
RUN = "p%2Fr"
VIEWS = {
    "groups": f"#/groups/{RUN}",
    "group": f"#/group/{RUN}/train/90/3",
    "tokens": f"#/tokens/{RUN}/train/90/3/1",
    "before": f"#/before/{RUN}",
    "behaviour": f"#/behaviour/{RUN}",
    "episodes": f"#/episodes/{RUN}",
}
FILLED = "document.querySelector('main h1, main .verdict')"
READY = "document.getElementById('main')?.dataset.ready"
CHART = "document.querySelector('.plot .main-svg')"
SENT = (
    "{const n = performance.getEntries().reduce((n, e) => n + (e.transferSize || 0), 0);"
    " performance.clearResourceTimings(); n}"
)
TEXT = "the order was changed since its items may be returned within thirty days of delivery"


class Bench:
    """One run directory, the server that shows it, and a browser."""

    def __init__(self, root: Path, server: int, url: str, tab: Tab) -> None:
        self.root, self.server, self.url, self.tab = root, server, url, tab

    async def measure(self, name: str, part: Any, *seen: str) -> None:
        """Print what it took until each of `seen` is true, and the CPU until all is quiet again."""
        began, before = time.monotonic(), self.cpu()
        await part
        took = []
        for each in seen:
            await self.tab.until(each)
            took.append(f"{time.monotonic() - began:.2f}")
        await self.settle()
        server, chromium = (b - a for a, b in zip(before, self.cpu(), strict=True))
        sent = await self.tab.run(SENT)
        words = f"{name:<24}{', '.join(took):>12} s{server:8.2f}{chromium:9.2f}"
        print(f"{words}{sent / 2**20:9.2f} MiB", flush=True)

    async def settle(self) -> None:
        """Wait until neither has used the CPU for a while."""
        last, quiet = sum(self.cpu()), 0
        while quiet < 2:
            await asyncio.sleep(0.5)
            now = sum(self.cpu())
            quiet, last = (quiet + 1 if now - last < 0.05 else 0), now

    def cpu(self) -> tuple[float, float]:
        """Return the CPU seconds of the server, and of all processes of the browser."""
        return cpu_seconds(self.server, of_session=False), cpu_seconds(
            self.tab.pid, of_session=True
        )

    async def follow(self, name: str, address: str, seconds: float) -> None:
        """Print what it costs a minute to have a view open on a run that goes on."""
        await self.tab.go(address)
        await self.settle()
        before, began, late = self.cpu(), time.monotonic(), []
        while time.monotonic() - began < seconds:
            at = time.monotonic()
            step = append_step(self.root)
            live = f"document.getElementById('live').innerText.includes('step {step}')"
            await self.tab.until(live)
            late.append(time.monotonic() - at)
            await asyncio.sleep(max(0.0, EVERY - late[-1]))
        share = 60 / (time.monotonic() - began)
        server, chromium = (share * (b - a) for a, b in zip(before, self.cpu(), strict=True))
        print(f"{name:<24}{max(late):12.2f} s{server:8.2f}{chromium:9.2f}", flush=True)


def main() -> None:
    """Make the run, open each view, then leave each open while the run goes on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=16.0, help="of each view that is left open"
    )
    parser.add_argument("--beside", metavar="CONFIG", help="what a view costs a run of it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "p" / "r"
        if asked.beside:
            return asyncio.run(beside(asked.beside, root))
        make(root)
        asyncio.run(bench(root, asked.seconds))


async def bench(root: Path, seconds: float) -> None:
    """Open all views, one of them as the first that is seen, then leave each open."""
    print(f"{'':<24}{'':>14}{'CPU seconds of':>17}")
    print(f"{'opened':<24}{'seen after':>14}{'server':>8}{'browser':>9}{'sent':>13}")
    async with opened(root) as one:
        page = one.tab.send("Page.navigate", url=one.url + VIEWS["behaviour"])
        await one.measure("behaviour, the first", page, READY, CHART)
    async with opened(root) as one:
        page = one.tab.send("Page.navigate", url=one.url)
        await one.measure("the page: text, chart", page, FILLED, CHART)
        for name, address in VIEWS.items():
            await one.measure(name, one.tab.go(address), READY)
        again = one.tab.send("Page.navigate", url=f"{one.url}?again")
        await one.measure("the page again", again, FILLED, CHART)
        if seconds:
            print(f"\na step every {EVERY:.0f} s; CPU seconds a minute")
            print(f"{'open':<24}{'shown after':>14}{'server':>8}{'browser':>9}")
            goes_on(root)
            for name, address in {"overview": f"#/overview/{RUN}", **VIEWS}.items():
                await one.follow(name, address, seconds)


async def beside(config: str, root: Path) -> None:
    """Train with Episodes open, from the second step to the last; print what the page used."""
    words = ["project=p", "name=r", f"--runs-dir={root.parent.parent}"]
    command = [sys.executable, "-m", "art_cli", "run", config, *words]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while run.poll() is None and not (root / "trajectories/train-000002.jsonl.gz").exists():
        await asyncio.sleep(0.1)
    async with opened(root) as one:
        await one.tab.send("Page.navigate", url=one.url + VIEWS["episodes"])
        await one.tab.until(READY)
        before, began = one.cpu(), time.monotonic()
        while True:
            server, chromium = (b - a for a, b in zip(before, one.cpu(), strict=True))
            seconds = time.monotonic() - began
            if json.loads((root / "status.json").read_text())["state"] != "running":
                break
            await asyncio.sleep(0.2)
    run.wait()
    print(f"{seconds:.0f} s; CPU seconds of art view {server:.2f}, of the browser {chromium:.2f}")
    print(f"art view used {server / seconds:.2%} of the time")


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Bench]:
    """Start a server and a browser that know nothing."""
    words = [sys.executable, "-m", "art_cli", "view", str(root)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    url = server.stdout.readline().strip()
    try:
        async with browser() as tab:
            one = Bench(root, server.pid, url, tab)
            await one.settle()
            yield one
    finally:
        server.terminate()
        server.wait()


def make(root: Path) -> None:
    """Make the run of 10,000 trajectories, with an evaluation before and after."""
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(
        "name: r\nenv: {use: retail}\nmodel: {base: nowhere}\ntrain: {steps: 100}\n"
    )
    add_evaluation(root, 0)
    for _ in range(STEPS):
        append_step(root)
    add_evaluation(root, STEPS)
    write_status(root, "done", STEPS)


def goes_on(root: Path) -> None:
    """Make the run one that goes on, on a cluster: nobody here need hold its lock."""
    (root / "cloud.json").write_text("{}")
    write_status(root, "running", STEPS)


def write_status(root: Path, state: str, step: int) -> None:
    """Write status.json."""
    status = {"state": state, "step": step, "steps": 1000, "pid": 1, "updated": "", "message": ""}
    (root / "status.json").write_text(json.dumps(status))


def append_step(root: Path) -> int:
    """Write what a run writes of its next step, and return its number."""
    folder = root / "trajectories"
    step = len(list(folder.glob("train-*"))) + 1
    path = folder / f"train-{step:06d}.jsonl.gz"
    if step > DIFFERENT:
        os.link(folder / f"train-{1 + step % DIFFERENT:06d}.jsonl.gz", path)
    else:
        rows = [long_row(step, g, i) for g in range(GROUPS) for i in range(SIBLINGS)]
        path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode(), 6))
    with open(root / "metrics.jsonl", "a") as file:
        more = {f"more/metric_{n}": n * 0.123456789 for n in range(60)}
        file.write(json.dumps(metrics_row(step) | more) + "\n")
    if (root / "cloud.json").exists():
        write_status(root, "running", step)
    return step


def long_row(step: int, group: int, index: int) -> dict[str, Any]:
    """Return a trajectory of a usual length: 4 turns with calls, results and an answer."""
    rng = random.Random(f"{step} {group} {index}")
    row = trajectory(step, "train", group, index)
    system, user, call, result, answer = row["messages"]
    said = [" ".join(rng.choices(TEXT.split(), k=n)) for n in (300, 60, 60, 60, 40)]
    turns = [call | {"content": said[n]} for n in (1, 2, 3)]
    talk = [system | {"content": said[0]}, user]
    for turn in turns:
        talk += [turn, result | {"content": json.dumps({"items": rng.choices(TEXT.split(), k=60)})}]
    ids = [rng.randrange(1000, 150_000) for _ in range(LONGEST)]
    mask = [int(i % 300 > 200) for i in range(LONGEST)]
    logprobs = [-rng.expovariate(4) if m else 0.0 for m in mask]
    return row | {
        "messages": [*talk, answer | {"content": said[4]}],
        "steps": [row["steps"][0]] * 3 + row["steps"][1:],
        "num_turns": 4,
        "num_sampled": sum(mask),
        "sequences": [{"ids": ids, "mask": mask, "engine_logprobs": logprobs}],
    }


def cpu_seconds(pid: int, *, of_session: bool) -> float:
    """Return the CPU seconds of a process, or of all in its session that live."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3] if of_session else path.parent.name) == pid:
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
