"""A run on a cluster, seen from here: send it, watch it, bring it back, end it.

The cluster runs the same `art run`; what is in `runs/<project>/<name>` here is a copy of what it
writes there, and cloud.json in it says where that is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from art_cli.backends.cloud import fetch, skypilot
from art_cli.backends.cloud.plan import Cluster, RentalPlan
from art_cli.backends.cloud.stored import bring_stored
from art_cli.backends.cloud.task import (
    RUNS,
    cluster_of,
    cluster_task,
    is_managed,
    job_name,
    run_task,
    secret_names,
    shipped_config,
)
from art_cli.backends.cloud.wheel import pack_wheel
from art_cli.config.load import LoadedExperiment
from art_cli.config.values import FORBID_UNKNOWN, Name
from art_cli.config.yaml import dump
from art_cli.errors import EXIT_FAILED, ArtError, Interrupted, PreflightError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.runs.maker import write_config
from art_cli.system.files import atomic_write, is_another, json_line, read_text

Say = Callable[[str], None]  # told what the user should know


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """cloud.json: where a run is."""

    __pydantic_config__ = FORBID_UNKNOWN
    job: int
    cluster: Name | None = None  # None: a managed job, which has machines of its own
    storage: str | dict[str, Any] | None = None  # where a managed job keeps its run
    infra: str | None = None  # where the job wants its machines, in SkyPilot's words
    root: str | None = None  # the run directory that it was sent from

    @property
    def name(self) -> str:
        """For messages."""
        return f"job {self.job} on {self.cluster}" if self.cluster else f"managed job {self.job}"


def read_sent(run: RunDir) -> Sent:
    """Return where the run is. Raises UsageError where it was not sent from here, or is a copy."""
    try:
        sent = TypeAdapter(Sent).validate_json(read_text(run.cloud), strict=True)
    except FileNotFoundError:
        raise UsageError(
            f"{run.root} was not sent to a cluster from here (it has no cloud.json)"
        ) from None
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{run.cloud} is damaged ({first}). Look for its job with `sky queue` or `sky jobs "
            "queue`, and end it there"
        ) from None
    if sent.root and is_another(Path(sent.root) / run.cloud.name, run.cloud):
        raise UsageError(f"{run.root} is a copy of {sent.root}, whose job {sent.name} is")
    return sent


def pack(loaded: LoadedExperiment, folder: Path) -> str:
    """Put what is shipped beside the user's code into `folder`, anew. Return the wheel's name."""
    for name in ("dist", "config"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    (folder / "config" / "config.yaml").write_text(shipped_config(loaded), encoding="utf-8")
    return pack_wheel(folder / "dist").name


def make_ready(
    loaded: LoadedExperiment, name: str, confirm: Callable[[RentalPlan], bool], say: Say
) -> bool:
    """Rent the cluster `name` and install art there, unless it is up. Return whether it is.

    `confirm` is shown what would be rented. Raises ConfigError, UsageError, PreflightError, and
    ArtError where nobody has such machines or the set-up fails.
    """
    backend = loaded.experiment.backend
    if is_managed(backend):
        raise UsageError(
            "backend.storage: such a run rents machines of its own, so there is no cluster to "
            "launch; start it: art run CONFIG"
        )
    skypilot.check_workdir(backend.workdir)
    with tempfile.TemporaryDirectory(prefix="art-ship-") as folder:
        task_of = cluster_task(loaded, Path(folder), pack(loaded, Path(folder)))
        task = skypilot.parse(task_of, loaded.origins)
        here = [c for c in skypilot.clusters([name]) if c.is_up]
        if here:
            say(f"{name} is up already: {here[0].resources}, {here[0].infra}")
        else:
            plan = skypilot.plan(task)
            if not confirm(plan):
                return False
            minutes = backend.autostop_minutes
            down = minutes is not None and not skypilot.can_stop(plan)
            if down:
                say(
                    f"warning: such machines cannot be stopped, so {name} is taken down after "
                    f"{minutes} idle minutes, with all that has not been brought back"
                )
            setup = skypilot.launch(task, name, idle_minutes=minutes, down=down)
            if setup is not None and not skypilot.follow(name, setup):
                raise ArtError(
                    f"the set-up failed, see above. {name} is up, and billed: mend it and launch "
                    f"it again, or end it: art cluster down {name}"
                )
    skypilot.write_ssh_config(name)
    return True


def send(
    loaded: LoadedExperiment,
    run: RunDir,
    going_on: list[str],
    confirm: Callable[[RentalPlan], bool],
) -> Sent:
    """Ship the run and start it on the cluster that its config names, which must be up, or as a
    managed job on machines that it rents; `confirm` is shown these.

    `going_on` are the options of `art run` about a run that is there already.

    Raises UsageError (no such cluster, the run is there already), ConfigError, ArtError.
    """
    cfg, backend = loaded.experiment, loaded.experiment.backend
    managed = is_managed(backend)
    if run.is_begun() and not run.cloud.exists():
        raise UsageError(
            f"{run.root} holds a run of this machine; give the other one another name: "
            "name=NEW_NAME"
        )
    skypilot.check_workdir(backend.workdir)
    fetch.check_rsync()
    cluster = cluster_of(cfg)
    gpus = None if managed else _check_free(cluster, job_name(cfg)).accelerators
    secrets = _secrets(loaded)
    # It stays: where SkyPilot's controller runs on this machine, recovering reads it again.
    folder = run.shipped.absolute()
    document = run_task(loaded, folder, pack(loaded, folder), secrets, going_on)
    if gpus and "accelerators" not in document["resources"]:
        document["resources"] = {**document["resources"], "accelerators": gpus}
    task, root = skypilot.parse(document, loaded.origins), str(run.root.absolute())
    if managed:
        if not confirm(skypilot.plan(task)):
            raise Interrupted("nothing was rented")
        number = skypilot.launch_managed(task, job_name(cfg))
        infra = backend.resources.get("infra")
        sent = Sent(job=number, storage=backend.storage, infra=infra, root=root)
    else:
        number = skypilot.launch(task, cluster)
        assert number is not None
        sent = Sent(job=number, cluster=cluster, root=root)
    run.exit.unlink(missing_ok=True)
    write_config(run, shipped_config(loaded))
    atomic_write(run.cloud, json_line(asdict(sent)))
    return sent


def _secrets(loaded: LoadedExperiment) -> dict[str, str]:
    secrets = {name: os.environ[name] for name in secret_names(loaded) if os.environ.get(name)}
    if missing := [name for name in loaded.experiment.backend.secrets if name not in secrets]:
        raise PreflightError(
            f"backend.secrets: {', '.join(missing)} is not set; put it into the environment or .env"
        )
    return secrets


def _check_free(cluster: str, name: str) -> Cluster:
    if not (found := skypilot.find(cluster)).is_up:
        raise UsageError(
            f"the cluster {cluster} is {found.state}; make it ready: art launch-cluster CONFIG "
            f"--name {cluster}"
        )
    for number, other, state in skypilot.jobs(cluster):
        if other == name and state in skypilot.ACTIVE:
            raise UsageError(
                f"this run goes on there already (job {number}, {state}); watch it: add --attach"
            )
    return found


def find_sent(loaded: LoadedExperiment, run: RunDir) -> Sent:
    """Return the run as it was sent from here or, by its job's name, from anywhere.

    Raises UsageError.
    """
    if run.cloud.exists():
        return read_sent(run)
    cfg = loaded.experiment
    cluster = cluster_of(cfg)
    skypilot.find(cluster)
    for number, name, _ in skypilot.jobs(cluster):
        if name == job_name(cfg):
            sent = Sent(job=number, cluster=cluster, root=str(run.root.absolute()))
            atomic_write(run.cloud, json_line(asdict(sent)))
            return sent
    raise UsageError(
        f"{cluster} has no job of {cfg.project}/{cfg.name}; start it: leave out --attach"
    )


def watch(sent: Sent, run: RunDir, say: Say) -> int:
    """Print what the run prints, and bring its directory back, until it ends. Return its exit code.

    Raises ArtError where it was lost sight of; the run goes on nevertheless.
    """
    if sent.cluster is None:
        return _watch_managed(sent, run, say)
    cluster, remote = sent.cluster, f"{RUNS}/{run.root.parent.name}/{run.root.name}"
    skypilot.write_ssh_config(cluster)

    def bring() -> bool:
        return fetch.bring_back(cluster, remote, run)

    with fetch.Bringing(bring):
        well = skypilot.follow(cluster, sent.job)
    say("bringing the run back")
    if not bring():
        say("warning: it left no run directory")
    return _code(run, well)


def _watch_managed(sent: Sent, run: RunDir, say: Say) -> int:
    state = skypilot.follow_managed(sent.job)
    if not _bring_managed(sent, run, say):
        say("warning: it left nothing on its storage")
    if state.startswith("FAILED_"):  # before the run began: a former life's end is not this one's
        say(f"{sent.name} is {state}")
        run.exit.unlink(missing_ok=True)
    return _code(run, state == "SUCCEEDED")


def _bring_managed(sent: Sent, run: RunDir, say: Say) -> bool:
    assert sent.storage is not None
    say("bringing the run back")
    return bring_stored(sent.storage, sent.infra, run, say)


def _code(run: RunDir, well: bool) -> int:
    """Return the run's own exit code; where it left none, 0 or 1 by whether its job went well."""
    code = run.read_exit()
    if code is None:
        code = 0 if well else EXIT_FAILED
        run.write_exit(code)
    return code


def cancel(run: RunDir, say: Say) -> None:
    """End the run where it is, and bring back what it has saved. Raises UsageError, ArtError."""
    sent = read_sent(run)
    if sent.cluster is None:
        skypilot.cancel_managed(sent.job)
        say(f"cancelled {sent.name}; its machines end with it")
    else:
        skypilot.cancel(sent.cluster, sent.job)
        say(f"cancelled {sent.name}; the cluster stays: art cluster down {sent.cluster}")
    try:
        if sent.cluster is None:
            _bring_managed(sent, run, say)
        else:
            skypilot.write_ssh_config(sent.cluster)
            remote = f"{RUNS}/{run.root.parent.name}/{run.root.name}"
            fetch.bring_back(sent.cluster, remote, run)
    except ArtError as error:
        say(f"warning: {error}")
    if run.read_exit() is None:
        run.write_exit(EXIT_FAILED)


def export(loaded: LoadedExperiment, folder: Path) -> Path:
    """Write what `make_ready` would ask SkyPilot for as a task's YAML, with what it ships beside
    it. Return the YAML. Raises ConfigError, UsageError, PreflightError."""
    workdir = loaded.experiment.backend.workdir
    skypilot.check_workdir(workdir)
    folder = folder.absolute()
    document = cluster_task(loaded, folder, pack(loaded, folder))
    if workdir:  # the file may be used from anywhere
        document["workdir"] = str(Path(workdir).expanduser().resolve())
    skypilot.parse(document, loaded.origins)
    atomic_write(folder / "task.yaml", dump(document))
    return folder / "task.yaml"
