"""The short run, tracked by W&B: offline, or online at the loopback server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from loopback_wandb import LoopbackWandb
from short_run import CONFIG, Art, held_after, with_pauses

SECRET = "nobody-may-see-this"
ADAPTER = CONFIG.replace("adapter: null", "adapter: {rank: 4}").replace(
    "optimizer: muon}", "optimizer: muon, weights: all}"
)
OFFLINE = {"WANDB_MODE": "offline", "WANDB_API_KEY": SECRET}


def start(folder: Path, *arguments: str, env: dict[str, str], more: str = "") -> Art:
    config = with_pauses(folder, ADAPTER) + "track: {wandb: {entity: us}}\n" + more
    (folder / "config.yaml").write_text(config)
    return Art(folder, "config.yaml", *arguments, env={"HOME": str(folder)} | env)


def ended(art: Art) -> Art:
    assert art.wait() == 0, art.output
    return art


def online(server: LoopbackWandb) -> dict[str, str]:
    url, key = server.url, server.key
    return {"WANDB_MODE": "online", "WANDB_BASE_URL": url, "WANDB_API_KEY": key}


def sync(art: Art, server: LoopbackWandb) -> None:
    """By the command that the run has said last."""
    command = art.output.rpartition("Upload it: ")[2].splitlines()[0].split()
    assert command[:2] == ["wandb", "sync"]
    env = os.environ | online(server) | {"HOME": str(art.folder)}
    wandb = [sys.executable, "-m", "wandb", *command[1:]]
    subprocess.run(wandb, cwd=art.folder, env=env, check=True, timeout=600, capture_output=True)


def session(art: Art) -> Path:
    """The file that waits for `wandb sync`: there is always one at the most."""
    (path,) = art.run.root.glob("wandb/offline-run-*/*.wandb")
    return path


def missing(art: Art, rows: list[dict[str, Any]]) -> list[str]:
    """What of metrics.jsonl is not in the rows of W&B, where each step has to be one row."""
    by_step = {row["training_step"]: row for row in rows}
    assert len(by_step) == len(rows) and sorted(by_step) == [r["training_step"] for r in rows]
    return [
        f"{key} of step {row['training_step']}"
        for row in art.run.read_metrics()
        for key, value in row.items()
        if by_step[row["training_step"]].get(key) != value
    ]


def in_step_6(folder: Path, env: dict[str, str]) -> Art:
    art = start(folder, env=env)
    held_after(5, art)
    return art


def killed_in_step_6(folder: Path, env: dict[str, str]) -> None:
    art = in_step_6(folder, env)
    art.signal(signal.SIGKILL)
    assert art.wait() == -signal.SIGKILL
    (folder / "hold").unlink()
