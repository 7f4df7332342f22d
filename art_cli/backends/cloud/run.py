"""Management of a run on a cluster from this machine: send, watch, fetch, cancel.

The cluster runs the same `art run`. `runs/<project>/<name>` here is a copy of the run directory
there, and its cloud.json says where the run is.
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

Say = Callable[[str], None]  # called with messages for the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The content of cloud.json: where a run is."""

    __pydantic_config__ = FORBID_UNKNOWN
    job: int
    cluster: Name | None = None  # None: a managed job, with its own machines
    storage: str | dict[str, Any] | None = None  # storage of a managed job's run
    infra: str | None = None  # SkyPilot's `infra` of the job's machines
    root: str | None = None  # local run directory from which it was sent

    @property
    def name(self) -> str:
        """The job's name in messages."""
        return f"job {self.job} on {self.cluster}" if self.cluster else f"managed job {self.job}"


def read_sent(run: RunDir) -> Sent:
    """Return where the run is. Raises UsageError if it was not sent from here, or is a copy."""
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
    """Write the wheel and config to ship into `folder`, replacing any. Return the wheel's name."""
    for name in ("dist", "config"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    (folder / "config" / "config.yaml").write_text(shipped_config(loaded), encoding="utf-8")
    return pack_wheel(folder / "dist").name


def make_ready(
    loaded: LoadedExperiment, name: str, confirm: Callable[[RentalPlan], bool], say: Say
) -> bool:
    """Rent the cluster `name` and install art there, unless it is up. Return whether it is up.

    `confirm` is called with the plan before renting. Raises ConfigError, UsageError,
    PreflightError, and ArtError if no such machines are available or the setup fails.
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
                    f"{minutes} idle minutes, with everything that was not fetched"
                )
            setup = skypilot.launch(task, name, idle_minutes=minutes, down=down)
            if setup is not None and not skypilot.follow(name, setup):
                raise ArtError(
                    f"the set-up failed, see above. {name} is up, and billed: fix this and launch "
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
    """Ship the run, and start it.

    It starts on the cluster that its config names, which must be up, or as a managed job on
    machines that are rented for it after `confirm`. `going_on` are options of `art run` for an
    existing run.

    Raises UsageError (no such cluster, the run exists there), ConfigError, ArtError.
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
    # The folder stays, because SkyPilot's controller on this machine reads it again for a recovery.
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
                f"this run is already running there (job {number}, {state}); watch it: add --attach"
            )
    return found


def find_sent(loaded: LoadedExperiment, run: RunDir) -> Sent:
    """Return the record of a sent run, also one sent from elsewhere, found by its job's name.

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
    """Print the run's output and copy its directory here until it ends. Return its exit code.

    Raises ArtError if the connection is lost; the run continues nevertheless.
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
    if state.startswith("FAILED_"):  # failed before it started: drop an earlier exit code
        say(f"{sent.name} is {state}")
        run.exit.unlink(missing_ok=True)
    return _code(run, state == "SUCCEEDED")


def _bring_managed(sent: Sent, run: RunDir, say: Say) -> bool:
    assert sent.storage is not None
    say("bringing the run back")
    return bring_stored(sent.storage, sent.infra, run, say)


def _code(run: RunDir, well: bool) -> int:
    """Return the run's own exit code or, without one, 0 or 1 for a successful or failed job."""
    code = run.read_exit()
    if code is None:
        code = 0 if well else EXIT_FAILED
        run.write_exit(code)
    return code


def cancel(run: RunDir, say: Say) -> None:
    """Cancel the run where it is, and fetch what it has saved. Raises UsageError, ArtError."""
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
    """Write the task's YAML that `make_ready` would give SkyPilot, with the files to ship.

    Returns the YAML's path. Raises ConfigError, UsageError, PreflightError.
    """
    workdir = loaded.experiment.backend.workdir
    skypilot.check_workdir(workdir)
    folder = folder.absolute()
    document = cluster_task(loaded, folder, pack(loaded, folder))
    if workdir:  # the YAML may be used from any folder
        document["workdir"] = str(Path(workdir).expanduser().resolve())
    skypilot.parse(document, loaded.origins)
    atomic_write(folder / "task.yaml", dump(document))
    return folder / "task.yaml"
