"""A cluster is rented, trains runs that come back, and is given back; real but for the cloud."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file
from sky_user import CLUSTER, User, eventually, read_until, slurm

from art_cli.runs.directory import RunDir

# 5000 steps take two minutes, and were over once before they were to be cancelled
ENDLESS = ("train.steps=1000000", "eval=null", "checkpoint.every=200")


def test_a_second_launch_finds_the_first(user: User, cluster: str) -> None:
    before = slurm("squeue", "-h", "-o", "%i %j")
    printed = user.art("launch-cluster", "config.yaml", "--name", cluster)
    assert "is up already" in printed and slurm("squeue", "-h", "-o", "%i %j") == before
    [row] = [r for r in json.loads(user.art("clusters", "--json")) if r["name"] == cluster]
    assert (row["state"], row["usd"], row["autostop_minutes"]) == ("UP", 0.0, 30)


def test_mistakes_are_told_with_what_to_do(user: User, cluster: str) -> None:
    printed = user.art("run", "config.yaml", "--on", "nobody", code=2)
    assert f"there is no cluster 'nobody'; there is: {cluster}" in printed
    printed = user.art("cluster", "stop", cluster, code=2)
    assert "not support" in printed.lower()  # Slurm has no such thing
    (user.folder / "typo.yaml").write_text("backend: {use: skypilot, resources: {cpuss: 2}}\n")
    printed = user.art("launch-cluster", "config.yaml", "typo.yaml", "--dry-run", code=2)
    assert "typo.yaml:1: backend.resources.cpuss: " in printed and "mean 'cpus'" in printed
    spot = ("backend.use=skypilot", "backend.resources={infra: slurm/loop, use_spot: true}")
    printed = user.art("run", "config.yaml", *spot, "backend.storage=/kept", "--yes", code=1)
    assert "Spot instances are not supported in Slurm" in printed
    (user.folder / ".skyignore").unlink()
    printed = user.art("run", "config.yaml", "--on", cluster, code=2)
    assert ".env" in printed and "would be shipped" in printed


def test_a_run_comes_back_with_its_directory_and_its_exit_code(user: User, cluster: str) -> None:
    on = ("run", "config.yaml", "--on", cluster)
    printed = user.art(*on, "backend.secrets=[MY_KEY]")
    assert "step 3/3" in printed and "k-123" not in printed
    assert "gpu:h100:1" in slurm("squeue", "-h", "-o", "%b")  # the cluster's are the run's
    run = RunDir(user.folder / "runs" / "sky" / "config")
    assert run.state() == "done" and run.checkpoint_steps() == [2, 3]
    last = run.read_metrics()[-1]
    assert last["val/came_along"] == last["val/left_out"] == last["val/has_secret"] == 1
    assert not any("k-123" in p.read_text() for p in (run.config, run.cloud))
    assert "done" in user.art("runs") and "3/3" in user.art("runs")
    again = user.art(*on, code=2)  # the cluster's own `art run` refuses a run that exists
    assert "already holds a run" in again and run.read_exit() == 2


def test_the_quickstart_trains_there(
    user: User, cluster: str, request: pytest.FixtureRequest
) -> None:
    config = request.config.rootpath / "configs" / "quickstart.yaml"
    short = ("train.steps=3", "eval.every=3", "checkpoint.every=3", "warmup.num_demonstrations=200")
    printed = user.art("run", str(config), *short, "--on", cluster)
    assert "step 3/3" in printed
    run = RunDir(user.folder / "runs" / "default" / "quickstart")
    assert run.state() == "done" and len(run.trajectory_steps("train")) == 3


def test_who_lets_go_can_watch_again_and_cancel(user: User, cluster: str) -> None:
    on = ("run", "config.yaml", "name=long", *ENDLESS, "--on", cluster)
    watching = user.start(*on)
    seen = read_until(watching, r"step \d+/1000000")
    watching.send_signal(signal.SIGINT)
    rest, _ = watching.communicate(timeout=600)
    assert watching.returncode == 130 and "--attach" in rest and "art cancel" in rest, seen + rest
    assert "goes on there already" in user.art(*on, code=2)
    watching = user.start(*on, "--attach")
    read_until(watching, r"step \d+/1000000")
    watching.kill()  # a lost connection
    watching.communicate(timeout=600)
    assert "goes on there already" in user.art(*on, code=2)
    watching = user.start(*on, "--attach")
    read_until(watching, r"step \d+/1000000")
    run = RunDir(user.folder / "runs" / "sky" / "long")
    eventually(run.checkpoint_steps, "checkpoints come while it is watched")
    assert run.state() == "running"
    user.art("cancel", "runs/sky/long")
    rest, _ = watching.communicate(timeout=600)
    assert watching.returncode == 1, rest
    assert run.state() in ("killed", "interrupted") and run.checkpoint_steps()


def test_a_run_may_be_silent_and_a_launch_may_not(user: User, cluster: str) -> None:
    with (user.folder / "env.py").open("a") as file:
        file.write(
            "\n\nimport asyncio\n\n\nclass Slow(Mine):\n    seconds = 9\n\n"
            "    async def start(self):\n        seconds, Slow.seconds = Slow.seconds, 0\n"
            "        await asyncio.sleep(seconds)\n        return await super().start()\n"
        )
    slow = ("run", "config.yaml", "env.use=env.py:Slow", "train.steps=1", "name=slow", "eval=null")
    watching = user.start(*slow, "--on", cluster)
    read_until(watching, "Ctrl-C lets go of it")
    watching.kill()
    watching.communicate(timeout=600)
    printed = user.art(*slow, "--on", cluster, "--attach", silence=4)
    assert "step 1/1" in printed
    rented = ("backend.use=skypilot", "backend.resources={infra: slurm/loop, cpus: 2, memory: 4}")
    launch = ("launch-cluster", "config.yaml", *rented, "--name", "art-silent", "--yes")
    printed = user.art(*launch, code=1, silence=0.5)
    assert "SkyPilot has said nothing of the launch of art-silent" in printed
    assert "sky api status" in printed and "art cluster down art-silent" in printed
    eventually(lambda: "art-silent" in user.art("clusters"), "the launch went on without us")
    user.art("cluster", "down", "art-silent")


def test_two_nodes_train_one_model(user: User) -> None:
    two = (
        "train.num_processes=2",
        "backend.use=skypilot",
        "backend.cluster=art-two",
        "backend.num_nodes=2",
        "backend.resources={infra: slurm/loop, cpus: 2, memory: 4}",
    )
    user.art("launch-cluster", "config.yaml", *two, "--yes")
    printed = user.art("run", "config.yaml", *two)
    assert "step 3/3" in printed and "n2" in slurm("sinfo", "-h", "-t", "alloc,mix", "-o", "%N %n")
    run = RunDir(user.folder / "runs" / "sky" / "config")
    assert run.state() == "done" and run.read_metrics()[-1]["training_step"] == 3
    user.art("cluster", "down", "art-two")
    assert "art-two" not in user.art("clusters")


@pytest.fixture
def empty_vllm(request: pytest.FixtureRequest) -> Iterator[None]:
    """A package of that name for the nodes, which have no room for the real one."""
    wheel = request.config.rootpath / ".venv-sky" / "wheels" / "vllm-0.32.0-py3-none-any.whl"
    info = "vllm-0.32.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    yield
    wheel.unlink()


@pytest.mark.usefixtures("empty_vllm")
def test_a_run_finds_its_node_that_serves_and_hears_what_it_lacks(user: User) -> None:
    (user.folder / "two.yaml").write_text(
        "engine: {use: vllm, nodes: 1}\nbackend: {use: skypilot, cluster: art-serves, num_nodes: 2,"
        " resources: {infra: slurm/loop, cpus: 2, memory: 4}}\n"
    )
    two = ("config.yaml", "two.yaml", "name=served")
    user.art("launch-cluster", *two, "--yes")
    printed = user.art("run", *two, code=3)
    assert re.search(r"the engine's node [\d.]+: engine.use is vllm, but there is no GPU", printed)
    assert "was not told that the run is over" not in printed and "TOKEN" not in printed
    user.art("cluster", "down", "art-serves")


def test_a_preempted_job_goes_on_and_ends_as_if_it_had_not_been(user: User) -> None:
    kept, managed = kept_folder("kept")
    steps = ("train.steps=120", "checkpoint.every=5", "eval.every=120")
    user.art("run", "config.yaml", *steps, "name=undisturbed")
    watching = user.start("run", "config.yaml", *steps, *managed, "name=taken")
    archives = kept / "sky" / "taken"
    eventually(lambda: any(int(p.stem) >= 3 for p in archives.glob("*.zip")), "checkpoints kept")
    slurm("scancel", "--signal=KILL", "--full", *_jobs("art-sky-taken"))
    printed, _ = watching.communicate(timeout=900)
    assert watching.returncode == 0, printed
    assert re.search(r"going on after step [1-9]", printed)
    assert "renting a small machine" in printed and "art-fetch" not in user.art("clusters")
    rewards = [row["train/reward"] for row in _rows(user, "taken") if "train/reward" in row]
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
    eventually(lambda: not _jobs("art-sky-ended"), "its machine is given back")


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


def test_skypilot_s_own_command_rents_a_cluster_with_art_on_it(
    user: User, request: pytest.FixtureRequest
) -> None:
    (user.folder / "loop.yaml").write_text(
        "backend: {use: skypilot, resources: {infra: slurm/loop, cpus: 2, memory: 4}}\n"
    )
    configs = ("config.yaml", "loop.yaml")
    printed = user.art("launch-cluster", *configs, "--export", "task")
    assert "sky launch -c NAME" in printed and (user.folder / "task" / "task.yaml").is_file()
    script = request.config.rootpath / "scripts" / "launch-cluster.sh"
    (user.folder / "one.yaml").write_text("".join((user.folder / c).read_text() for c in configs))
    own = user.environment | {"ART_CONFIG": "one.yaml"}
    done = subprocess.run(
        [str(script), "-c", "art-own", "--yes", "--down"],
        cwd=user.folder,
        env=own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = user.art("run", "config.yaml", "--on", "art-own", "name=own")
    assert "step 3/3" in printed
    user.art("cluster", "down", "art-own")


def _rows(user: User, name: str) -> list[dict[str, float]]:
    return RunDir(user.folder / "runs" / "sky" / name).read_metrics()


def _jobs(name: str) -> list[str]:
    lines = slurm("squeue", "-h", "-o", "%i %j").splitlines()
    return [number for number, job in map(str.split, lines) if job.startswith(name)]
