"""A cluster is rented, trains runs that come back, and is given back; real but for the cloud."""

from __future__ import annotations

import json
import re
import signal

from sky_user import ENDLESS, SMALL, User, eventually, jobs_of, read_until, slurm

from art_cli.runs.directory import RunDir


def test_a_second_launch_finds_the_first(user: User, cluster: str) -> None:
    before = jobs_of(cluster)
    printed = user.art("launch-cluster", "config.yaml", "--name", cluster)
    assert "is up already" in printed and jobs_of(cluster) == before != []
    [row] = [r for r in json.loads(user.art("clusters", "--json")) if r["name"] == cluster]
    assert (row["state"], row["usd"], row["autostop_minutes"]) == ("UP", 0.0, 30)


def test_mistakes_are_told_with_what_to_do(user: User, cluster: str) -> None:
    printed = user.art("run", "config.yaml", "--on", "nobody", code=2)
    assert re.search(rf"there is no cluster 'nobody'; there is: .*\b{cluster}\b", printed)
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


def test_who_lets_go_can_watch_again_and_cancel(user: User, cluster: str) -> None:
    on = ("run", "config.yaml", "name=long", *ENDLESS, "--on", cluster)
    watching = user.start(*on)
    seen = read_until(watching, r"step \d+/1000000")
    watching.send_signal(signal.SIGINT)
    rest, _ = watching.communicate(timeout=600)
    assert watching.returncode == 130 and "--attach" in rest and "art cancel" in rest, seen + rest
    assert "is already running there" in user.art(*on, code=2)
    watching = user.start(*on, "--attach")
    read_until(watching, r"step \d+/1000000")
    watching.kill()  # a lost connection
    watching.communicate(timeout=600)
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
    rented = ("backend.use=skypilot", f"backend.resources={SMALL}")
    launch = ("launch-cluster", "config.yaml", *rented, "--name", "art-silent", "--yes")
    printed = user.art(*launch, code=1, silence=0.5)
    assert "SkyPilot has said nothing of the launch of art-silent" in printed
    assert "sky api status" in printed and "art cluster down art-silent" in printed
    eventually(lambda: "art-silent" in user.art("clusters"), "the launch went on without us")
    user.art("cluster", "down", "art-silent")
