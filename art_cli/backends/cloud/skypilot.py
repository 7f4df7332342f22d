"""Wrapper of SkyPilot: the only file that imports it, and only for cloud commands (3 s).

SkyPilot's exceptions become ours here, with the remedy and whatever is still billed.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from art_cli.backends.cloud.plan import Cluster, RentalPlan, read_plan
from art_cli.backends.cloud.stall import SILENCE, StallError, listening
from art_cli.backends.cloud.task import place_of
from art_cli.errors import ArtError, ConfigError, Interrupted, PreflightError, UsageError

T = TypeVar("T")
Document = dict[str, Any]

ANSWER_SECONDS = 120.0  # seconds; the API server starts in 30 s on a busy machine
LOOK = 2.0  # seconds between checks of a job that is about to end
DOWN_SECONDS = 900.0  # clouds take minutes to end a machine
JOB_SUCCEEDED = 0
ACTIVE = {"INIT", "PENDING", "SETTING_UP", "RUNNING"}  # states of a job that has not ended
MANAGED_ENDED = ("SUCCEEDED", "CANCELLED", "FAILED")  # and FAILED_SETUP and the like
NO_CLOUD = (
    "no cloud is enabled in SkyPilot, so nothing can be rented. Set up the credentials of one "
    "(AWS: `aws configure`), then run `sky check aws`, which says what it lacks"
)
LEFT_BEHIND = {".env", ".venv", "runs"}  # files that should not be shipped


def load_sky() -> Any:
    """Import SkyPilot and return the module. Raises PreflightError if it is not installed."""
    os.environ.setdefault("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    try:
        import sky  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise PreflightError(
            f"SkyPilot is not installed ({error}); it rents machines: pip install 'art-cli[cloud]' "
            "(not in the environment of vLLM: the two need other versions of click)"
        ) from None
    return sky


def parse(document: Document, origins: dict[str, str]) -> Any:
    """Return a sky.Task of the document. Raises ConfigError with SkyPilot's text and the place."""
    sky = load_sky()
    try:
        with redirect_stdout(io.StringIO()):
            return sky.Task.from_yaml_config(deepcopy(document))  # which SkyPilot modifies
    except (ValueError, AssertionError, TypeError) as error:
        message = " ".join(str(error).split())
        raise ConfigError([place_of(message, origins) + message]) from None


def check_workdir(workdir: str | None) -> None:
    """Raise UsageError if the workdir contains files that should not be shipped."""
    load_sky()
    from sky.data import storage_utils  # pyright: ignore[reportMissingImports]

    if workdir is None:
        return
    folder = Path(workdir).expanduser().resolve()
    if folder in (Path.home(), Path("/")):
        raise UsageError(
            f"backend.workdir is {folder}, all of which would be shipped; start art in the folder "
            "of your code, or name it"
        )
    ignored = {
        path.removeprefix("./").rstrip("/*") for path in storage_utils.get_excluded_files(workdir)
    }
    found = sorted(name for name in LEFT_BEHIND if (folder / name).exists() and name not in ignored)
    if found:
        # SkyPilot reads .gitignore only in a git repository, and not beside a .skyignore.
        in_git = any((parent / ".git").exists() for parent in (folder, *folder.parents))
        own = (folder / ".skyignore").exists() or not in_git
        file = folder / (".skyignore" if own else ".gitignore")
        raise UsageError(
            f"{', '.join(found)} in {folder} would be shipped to the cluster; leave them out: "
            f"printf '%s\\n' {' '.join(found)} >> {file}"
        )


def plan(task: Any) -> RentalPlan:
    """Return SkyPilot's present choice and its price. Raises ArtError, PreflightError."""
    sky = load_sky()
    with sky.Dag() as dag:
        dag.add(task)
    printed = io.StringIO()
    ask(lambda: sky.stream_and_get(sky.optimize(dag), output_stream=printed), "a plan")
    return read_plan(printed.getvalue())


def can_stop(chosen: RentalPlan) -> bool:
    """Return whether such machines can be stopped with their disks kept, or only terminated."""
    sky = load_sky()
    cloud = sky.CLOUD_REGISTRY.from_str(chosen.cloud)
    stopping = {sky.clouds.CloudImplementationFeatures.STOP}
    try:
        machine = sky.Resources(cloud=cloud, use_spot=chosen.is_spot)
        cloud.check_features_are_supported(machine, stopping)
    except sky.exceptions.NotSupportedError:
        return False
    return True


def clusters(names: list[str] | None = None) -> list[Cluster]:
    """Return the existing clusters with their states. Raises ArtError, PreflightError."""
    sky = load_sky()
    auto = sky.StatusRefreshMode.AUTO
    records = ask(lambda: sky.get(sky.status(names, refresh=auto)), "the clusters")
    costs = ask(lambda: sky.get(sky.cost_report()), "their costs") if records else []
    usd = {row["cluster_hash"]: row["total_cost"] for row in costs}
    return [
        Cluster(
            name=record["name"],
            state=record["status"].value,
            resources=record["resources_str"],
            infra=f"{record['cloud']} ({record['region']})",
            since=datetime.fromtimestamp(record["launched_at"], UTC),
            autostop_minutes=record["autostop"] if record["autostop"] >= 0 else None,
            usd=usd.get(record["cluster_hash"], 0.0),
            accelerators=record["handle"].launched_resources.accelerators,
        )
        for record in records
    ]


def find(name: str) -> Cluster:
    """Return the cluster with this name. Raises UsageError, which lists those that exist."""
    there = clusters()
    for cluster in there:
        if cluster.name == name:
            return cluster
    names = ", ".join(c.name for c in there) or "none"
    raise UsageError(
        f"there is no cluster {name!r}; there is: {names}. Rent one: art launch-cluster CONFIG "
        f"--name {name}"
    )


def launch(
    task: Any, name: str, *, idle_minutes: int | None = None, down: bool = False
) -> int | None:
    """Rent the cluster if it does not exist, set it up, and submit the task's command, if any.

    Returns the job's number. SkyPilot prints its progress. Raises ArtError (no capacity, no quota,
    a failing setup), PreflightError.
    """
    sky = load_sky()
    try:
        with translated(name), listening(lambda: False) as out:
            job, _ = sky.stream_and_get(
                sky.launch(
                    task, cluster_name=name, idle_minutes_to_autostop=idle_minutes, down=down
                ),
                output_stream=out,
            )
    except StallError:
        raise ArtError(
            f"SkyPilot has said nothing of the launch of {name} for {SILENCE / 60:g} minutes. It "
            f"may go on, and is billed then. Look: sky status {name}, sky api status. End it: art "
            f"cluster down {name}"
        ) from None
    except KeyboardInterrupt:  # SkyPilot's server continues the launch
        raise Interrupted(
            f"\nlet go of the launch, which goes on, and {name} is billed. Look: art clusters. End "
            f"it: art cluster down {name}"
        ) from None
    return job


def write_ssh_config(name: str) -> None:
    """Write SSH settings for the cluster, like `sky status NAME` does. Raises PreflightError."""
    try:
        _command("status", name)
    except (OSError, subprocess.SubprocessError) as error:
        raise PreflightError(
            f"`sky status {name}` failed, so ssh knows no {name}: {error}"
        ) from None


def follow(cluster: str, job: int) -> bool:
    """Print the job's output until it ends. Return whether it succeeded. Raises ArtError."""
    sky = load_sky()

    def goes_on() -> bool:  # a run may print nothing during a long step
        return _state_of(cluster, job) in ACTIVE

    with translated(cluster):
        try:
            with listening(goes_on) as out:
                code = sky.tail_logs(cluster, job, follow=True, output_stream=out)
        except StallError:
            return _state_of(cluster, job) == "SUCCEEDED"
        return code == JOB_SUCCEEDED


def _state_of(cluster: str, job: int) -> str | None:
    return next((state for number, _, state in jobs(cluster) if number == job), None)


def jobs(cluster: str) -> list[tuple[int, str, str]]:
    """Return number, name and state of each job of a cluster, newest first."""
    sky = load_sky()
    with translated(cluster):
        rows = ask(lambda: sky.get(sky.queue(cluster, all_users=True)), "the jobs")
    found = [(row["job_id"], row["job_name"], row["status"].value) for row in map(dict, rows)]
    return sorted(found, reverse=True)


def cancel(cluster: str, job: int) -> None:
    """Cancel a job. Raises ArtError."""
    sky = load_sky()
    with translated(cluster):
        ask(lambda: sky.get(sky.cancel(cluster, job_ids=[job])), f"the end of job {job}")


def stop(cluster: str) -> None:
    """Stop its machines and keep their disks. Raises UsageError if that cloud cannot."""
    sky = load_sky()
    with translated(cluster):
        ask(lambda: sky.get(sky.stop(cluster)), f"{cluster} to stop", DOWN_SECONDS)


def down(cluster: str) -> None:
    """Terminate its machines and delete their disks. Raises ArtError."""
    sky = load_sky()
    with translated(cluster):
        ask(lambda: sky.get(sky.down(cluster)), f"the end of {cluster}", DOWN_SECONDS)


# -- managed jobs ------------------------------------------------------------------------------


def launch_managed(task: Any, name: str) -> int:
    """Start a job with its own machines. Return its number. Raises ArtError, PreflightError."""
    sky = load_sky()
    try:
        with translated(name), listening(lambda: False) as out:
            request = sky.jobs.launch(task, name=name)
            numbers, _ = sky.stream_and_get(request, output_stream=out)
    except StallError:
        raise ArtError(
            f"SkyPilot has said nothing of the job {name} for {SILENCE / 60:g} minutes. It may go "
            "on, and is billed then. Look: sky jobs queue, sky api status. End it: sky jobs cancel "
            f"-n {name}"
        ) from None
    return numbers[0]


def follow_managed(job: int) -> str:
    """Print the job's output until it ends, also after a recovery from preempted machines.
    Return its final state, as by `managed_state`. Raises ArtError."""
    sky = load_sky()
    with (
        translated(f"job {job}"),
        suppress(StallError),
        listening(lambda: not has_ended(managed_state(job))) as out,
    ):
        sky.jobs.tail_logs(job_id=job, follow=True, output_stream=out)
    return managed_state(job)


def has_ended(state: str) -> bool:
    """Return whether a managed job in this state has ended."""
    return state.startswith(MANAGED_ENDED)


def managed_state(job: int) -> str:
    """Return SkyPilot's state of a managed job: RUNNING, RECOVERING, SUCCEEDED, FAILED, ..."""
    sky = load_sky()
    with translated(f"job {job}"):
        request = sky.jobs.queue_v2(refresh=False, job_ids=[job])
        rows = ask(lambda: sky.get(request), "the managed jobs")[0]
    if not rows:
        raise UsageError(f"SkyPilot knows no managed job {job}")
    return dict(rows[0])["status"].value


def cancel_managed(job: int) -> None:
    """Cancel a managed job with its machines, and wait until it has ended. Raises ArtError."""
    sky = load_sky()
    with translated(f"job {job}"):
        ask(lambda: sky.get(sky.jobs.cancel(job_ids=[job])), f"the end of job {job}")
    deadline = time.monotonic() + DOWN_SECONDS
    while not has_ended(state := managed_state(job)):
        if time.monotonic() > deadline:
            raise ArtError(
                f"job {job} was to end, but is {state} after {DOWN_SECONDS / 60:g} minutes, and "
                "billed. Look: sky jobs queue"
            )
        time.sleep(LOOK)


# -- answers and errors ------------------------------------------------------------------------


def ask(question: Callable[[], T], what: str, seconds: float = ANSWER_SECONDS) -> T:
    """Return the answer of SkyPilot's API server, with a timeout, which its client lacks.

    Raises PreflightError if there is no answer in time, otherwise errors as by `translated`.
    """
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, question()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="art-sky", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise PreflightError(
            f"SkyPilot's API server did not answer within {seconds:g} s (asked for {what}); see "
            "`sky api status`, or restart it: sky api stop && sky api start"
        )
    with translated(what):
        well, result = outcome[0]
        if not well:
            raise result
    return result


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Convert SkyPilot's exceptions inside to ours. `what` names the action or the cluster."""
    sky = load_sky()
    e = sky.exceptions
    try:
        yield
    except ArtError:
        raise
    except e.NoCloudAccessError:
        raise PreflightError(NO_CLOUD) from None
    except (e.ApiServerConnectionError, e.ApiServerAuthenticationError, ConnectionError) as error:
        raise PreflightError(f"SkyPilot's API server is not there: {_plain(error)}") from None
    except e.ClusterDoesNotExist as error:
        raise UsageError(f"{_plain(error)}. `art clusters` lists what there is") from None
    except (e.ResourcesMismatchError, e.NotSupportedError, e.InvalidClusterNameError) as error:
        raise UsageError(f"{what}: {_plain(error)}") from None
    except (e.ResourcesUnavailableError, e.ProvisionPrechecksError) as error:
        raise ArtError(f"{what}: {_plain(error)}\n{_billing(sky)}") from None
    except (e.CommandError, e.ClusterSetUpError, e.ClusterNotUpError, e.StorageError) as error:
        raise ArtError(f"{what}: {_plain(error)}\n{_billing(sky)}") from None
    except (ValueError, RuntimeError, e.RequestCancelled) as error:
        raise ArtError(f"{what}: {_plain(error)}") from None


def _plain(error: BaseException | str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    return text or type(error).__name__


def _command(*arguments: str) -> str:
    """Return the output of SkyPilot's own command. Raises OSError, SubprocessError."""
    command = [str(Path(sys.executable).with_name("sky")), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
    )
    return done.stdout


def _billing(sky: Any) -> str:
    """Return a message about everything that is still billed after a failure."""
    try:
        left = [r["name"] for r in sky.get(sky.status()) if r["status"].value != "STOPPED"]
    except Exception:  # an error is already being handled
        return "SkyPilot could not list what is left: look with `art clusters`"
    if not left:
        return "No cluster is left, so nothing is billed."
    return f"Still there, and billed: {', '.join(left)}. End one: art cluster down NAME"
