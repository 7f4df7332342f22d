"""`art compare` and `art sweep` train on clusters, and stop there what is behind."""

from __future__ import annotations

import json
import signal
from typing import Any

from sky_user import User, eventually

from art_cli.backends.cloud.run import Sent, read_sent
from art_cli.runs.directory import RunDir

# A second a step: long enough to be looked at before they end.
PATIENT = ("env.use=env.py:Patient", "checkpoint.every=5")


def runs_of(user: User) -> dict[str, RunDir]:
    """The runs that were sent to a cluster, by name."""
    sent = sorted(user.folder.glob("runs/*/*/cloud.json"))
    return {file.parent.name: RunDir(file.parent) for file in sent}


def where(user: User) -> dict[str, Sent]:
    """Where each run is."""
    return {name: read_sent(run) for name, run in runs_of(user).items()}


def told(printed: str) -> Any:
    """What a command with --json found."""
    return json.loads(printed.splitlines()[-1])


def test_a_comparison_on_two_clusters_is_let_go_of_and_found_again(
    user: User, cluster: str, other: str
) -> None:
    words = ("compare", f"config.yaml train.steps=8 {' '.join(PATIENT)}")
    words += ("train.learning_rate=1.0e-9", "--seeds=2", "--json")
    words += ("--on", cluster, "--on", other)
    comparing = user.start(*words)
    eventually(lambda: len(runs_of(user)) == 2, "both candidates are sent")
    comparing.send_signal(signal.SIGINT)
    printed, _ = comparing.communicate(timeout=600)
    assert comparing.returncode == 130, printed
    sent = where(user)
    assert {*sent} == {"a-0", "b-0"} and {s.cluster for s in sent.values()} == {cluster, other}
    assert "On a cluster these go on" in printed and all(
        str(run.root.relative_to(user.folder)) in printed for run in runs_of(user).values()
    )
    found = told(user.art(*words))
    assert found["seeds"] == 2 and "Not known whether b" in found["verdict"]
    again = where(user)
    assert {name: again[name] for name in sent} == sent  # found there, not sent once more
    assert {*again} == {"a-0", "a-1", "b-0", "b-1"}
    assert {again[name].cluster for name in ("a-1", "b-1")} == {cluster, other}
    for run in runs_of(user).values():
        steps = [row["training_step"] for row in run.read_metrics() if "train/reward" in row]
        assert run.state() == "done" and steps == [*range(1, 9)]


def test_a_trial_that_is_behind_is_stopped_on_its_cluster(user: User, cluster: str) -> None:
    words = ("sweep", "config.yaml", "train.steps=30", "eval.every=5", *PATIENT)
    words += ("train.learning_rate=4.0e-3,1.0e-9", "--name=swept", "--json", "--on", cluster)
    found = told(user.art(*words))
    assert [trial["state"] for trial in found["trials"]] == ["done", "stopped"]
    assert found["best"] == {"train.learning_rate": "4.0e-3"}
    behind = runs_of(user)["t1-1000"]
    assert behind.state() in ("killed", "interrupted") and behind.checkpoint_steps()
    assert max(row["training_step"] for row in behind.read_metrics()) < 30
