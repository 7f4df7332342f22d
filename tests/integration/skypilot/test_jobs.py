"""A managed job rents machines of its own, goes on where they are taken away, and ends."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

from safetensors.torch import load_file
from sky_user import CLUSTER, ENDLESS, User, eventually, jobs_of, slurm

from art_cli.runs.directory import RunDir


def test_a_preempted_job_goes_on_and_ends_as_if_it_had_not_been(user: User) -> None:
    kept, managed = kept_folder("kept")
    steps = ("train.steps=120", "checkpoint.every=5", "eval.every=120")
    user.art("run", "config.yaml", *steps, "name=undisturbed")
    watching = user.start("run", "config.yaml", *steps, *managed, "name=taken")
    archives = kept / "sky" / "taken"
    eventually(lambda: any(int(p.stem) >= 3 for p in archives.glob("*.zip")), "checkpoints kept")
    slurm("scancel", "--signal=KILL", "--full", *jobs_of("art-sky-taken"))
    printed, _ = watching.communicate(timeout=900)
    assert watching.returncode == 0, printed
    assert re.search(r"going on after step [1-9]", printed)
    assert "renting a small machine" in printed and "art-fetch" not in user.art("clusters")
    rewards = [
        row["train/reward"]
        for row in RunDir(user.folder / "runs" / "sky" / "taken").read_metrics()
        if "train/reward" in row
    ]
    assert len(rewards) == 120 and len({*rewards}) > 1
    ours, theirs = (
        load_file(user.folder / "runs" / "sky" / name / "checkpoints" / "120" / "model.safetensors")
        for name in ("undisturbed", "taken")
    )
    assert all((ours[key] == theirs[key]).all() for key in ours)


def kept_folder(name: str) -> tuple[Path, tuple[str, ...]]:
    """Storage that the nodes see and this machine does not -> it, and a job's options."""
    kept = CLUSTER / "home" / name  # on the disk that all nodes share
    kept.mkdir()
    shutil.chown(kept, "skytest")
    for node in ("n1", "n2"):
        (CLUSTER / "nodes" / node / "tmp" / name).symlink_to(kept)
    resources = (
        "{infra: slurm/loop, cpus: 2, memory: 4, "
        "job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 1}}"
    )
    managed = ("backend.use=skypilot", f"backend.resources={resources}", "--yes")
    return kept, (*managed, f"backend.storage=/tmp/{name}")


def test_a_managed_job_that_is_cancelled_brings_its_run_back(user: User) -> None:
    kept, managed = kept_folder("cancelled")
    watching = user.start("run", "config.yaml", "name=ended", *ENDLESS, *managed)
    run = RunDir(user.folder / "runs" / "sky" / "ended")
    eventually(lambda: list((kept / "sky" / "ended").glob("*.zip")), "checkpoints are kept")
    watching.kill()
    watching.communicate(timeout=600)
    assert not run.checkpoint_steps()
    printed = user.art("cancel", "runs/sky/ended")
    assert "cancelled managed job" in printed and "warning" not in printed
    assert run.checkpoint_steps() and run.read_metrics() and run.read_exit() not in (0, None)
    assert run.state() in ("killed", "interrupted") and "art-fetch" not in user.art("clusters")
    eventually(lambda: not jobs_of("art-sky-ended"), "its machine is given back")


def test_a_second_life_that_fails_in_its_set_up_has_no_code_of_the_first(user: User) -> None:
    kept, managed = kept_folder("twice")
    with (user.folder / "env.py").open("a") as file:  # on the node it ends with exit code 2
        file.write("\n\nclass Broken(Mine):\n    async def start(self):\n        1 / 0\n")
    fails = 'backend.setup=test -z "$(ls /tmp/twice)"'
    printed = user.art(
        *("run", "config.yaml", "env.use=env.py:Broken", "name=twice", fails, *managed), code=1
    )
    assert "ZeroDivisionError" in printed and "FAILED_SETUP" in printed
    [archive] = (kept / "sky" / "twice").glob("*.zip")
    with zipfile.ZipFile(archive) as first:
        assert json.loads(first.read("exit.json"))["code"] == 2
    assert RunDir(user.folder / "runs" / "sky" / "twice").read_exit() == 1
