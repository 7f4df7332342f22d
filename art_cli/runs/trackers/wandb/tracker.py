"""Weights & Biases: a mirror of the run directory that never blocks, slows or fails a run.

W&B's defaults block for 100 s on a dead network, and longer at the end of a run. So every call here
has a deadline, after which the wandb-core process is killed. The fallback is an offline run that
`wandb sync` uploads later, so nothing logged is lost. A separate thread imports and starts wandb,
which is slow on a busy machine or network disk. The run waits PATIENCE_SECONDS, then continues,
and metrics are queued for W&B meanwhile.

Each session first logs everything in metrics.jsonl and trajectories/ that W&B lacks. So it does not
matter how much of wandb's own files a kill lost, or whether earlier sessions were online. Offline
files of earlier sessions are replaced.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from art_cli.config.schema import Experiment
from art_cli.runs.checkpoint import read_progress, weight_files
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.background import BackgroundQueue
from art_cli.runs.trackers.shorten import in_a_line
from art_cli.runs.trackers.sink import SinkTracker
from art_cli.runs.trackers.wandb.files import (
    checkpoints_to_upload,
    keep_file,
    last_uploaded,
    note_step,
    replace_waiting,
    sync_line,
)
from art_cli.runs.trackers.wandb.samples import COLUMNS, held_out, siblings
from art_cli.runs.trackers.wandb.server import Mode, answers, base_url, choose_mode
from art_cli.runs.trackers.wandb.weave import weave_mirror
from art_cli.system.deadline import DeadlineError, within
from art_cli.types import Split

T = TypeVar("T")

PATIENCE_SECONDS = 5.0  # that the run waits for the start
IMPORT_SECONDS = 120.0
ONLINE_INIT_SECONDS = 15.0
OFFLINE_INIT_SECONDS = 30.0
MEDIA_SECONDS = 8.0  # to log a table or an artifact: wandb asks the server first
FINISH_SECONDS = 12.0
SLACK_SECONDS = 2.0  # so that wandb's own deadline expires before ours
UPLOAD_SECONDS = 900  # for weights
LIFE_SIGN_SECONDS = 2.0  # between checks of the server during an upload
EXIT_CODES = {"done": 0, "failed": 1, "interrupted": 255}  # W&B shows 255 as "killed"
TABLE_EVERY = 10  # steps between tables of training, each of which is an uploaded file


class WandbTracker:
    """One W&B run. After the constructor no method raises, and only `finish` waits.

    The constructor waits PATIENCE_SECONDS for the start, then continues. `config` is shown as the
    run's config: it must not contain resolved secrets. Raises PreflightError for mode `online`
    without a key.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDir,
        config: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        assert experiment.track.wandb
        self._experiment = experiment
        self._cfg = experiment.track.wandb
        self._run_dir = run
        self._config = config
        self._say = say
        self._run: Any = None  # a wandb.Run; None: switched off
        self._session = run.root  # later the session's folder in wandb/
        self._takes_tables = True
        self._begin = 0  # W&B has the steps before this one
        self._last = -1  # the last step that was logged
        self._traces: SinkTracker | None = None
        self._mode, reason = choose_mode(self._cfg)
        # wandb asks its server before it accepts a table. The run must not wait for that.
        self._background = BackgroundQueue("art-wandb")
        self._started = threading.Event()
        self._background.hand(self._import)
        self._background.hand(lambda: self._start(reason))
        for row in run.read_metrics():  # rows that W&B already has are skipped
            self.log(row)
        if not self._started.wait(PATIENCE_SECONDS):
            say("W&B is slow to start. The run goes on; its metrics are sent once W&B is there.")

    def log(self, metrics: dict[str, float]) -> None:
        """Queue the metrics, and the trajectories of the same step, for wandb-core."""
        self._background.hand(lambda: self._mirror(metrics))

    def finish(self, state: str) -> None:
        """Upload the checkpoints and wait for uploads, but not for a dead server."""
        if not self._started.is_set():
            self._say("W&B is still starting: waiting for it.")
            self._started.wait()  # each part of the start has a deadline
        self._finish_run(state)
        if self._traces:  # traces were sent meanwhile
            self._traces.finish(state)

    def _finish_run(self, state: str) -> None:
        behind = not self._background.catches_up(MEDIA_SECONDS + 0.5)
        if self._run is None:
            return
        if behind:
            self._say("W&B lacks the last steps: it takes too long. The run's --resume sends them.")
        else:
            self._upload_checkpoints()
        run, self._run = self._run, None
        try:
            _within(FINISH_SECONDS + SLACK_SECONDS, lambda: _finish(run, EXIT_CODES.get(state, 1)))
            note_step(self._session, self._last)
        except Exception as error:
            _kill_core()
            sync = sync_line(self._session)
            self._say(f"W&B: the upload is not complete ({in_a_line(error)}). The rest: {sync}")
            return
        if self._mode == "offline":
            self._say(f"W&B: this run was logged offline. Upload it: {sync_line(self._session)}")

    # -- the start, in the background thread ------------------------------------------------

    def _import(self) -> None:
        """Import wandb. If that fails, the run continues without W&B."""
        try:
            if self._mode != "disabled":
                within(IMPORT_SECONDS, _import_wandb)
        except Exception as error:
            self._mode = "disabled"
            why = f"`import wandb` fails: {in_a_line(error)}"
            self._say(f"W&B is switched off, {why}. metrics.jsonl has everything.")

    def _start(self, reason: str) -> None:
        """Start in the chosen mode, else offline. `reason` explains an offline mode."""
        try:
            if self._mode == "online":
                reason = self._start_online()
            if self._mode == "offline":
                self._start_offline(reason)
        finally:
            self._started.set()

    def _start_online(self) -> str:
        """Try to start online. On failure, set the mode to offline and return the reason."""
        url = base_url()
        reason = f"{url} does not answer"
        if answers(url):
            try:
                self._run = _within(
                    ONLINE_INIT_SECONDS + SLACK_SECONDS, lambda: self._init("online")
                )
                self._catch_up(self._run.starting_step)
                self._say(f"W&B: {self._run.url}")
                if self._cfg.weave:
                    where = f"{self._run.entity}/{self._run.project}"
                    self._traces = weave_mirror(self._experiment, self._run_dir, where, self._say)
                return ""
            except Exception as error:
                reason = f"{url} does not take the run: {in_a_line(error)}"
                _teardown()  # otherwise the id is "in use" for the offline run
        self._mode = "offline"
        return reason

    def _start_offline(self, reason: str) -> None:
        try:
            self._run = _within(OFFLINE_INIT_SECONDS, lambda: self._init("offline"))
            self._catch_up(last_uploaded(self._session) + 1)
        except Exception as error:
            return self._switch_off("it cannot start", error)
        self._say(f"W&B: offline ({reason}). Upload later: {sync_line(self._session)}")
        if self._cfg.weave:
            self._say("Weave: no traces, since W&B is offline; an online --resume sends them")

    def _catch_up(self, begin: int) -> None:
        """Set the first step that W&B lacks, and replace earlier offline sessions."""
        self._begin = begin
        replace_waiting(self._session)  # their content is logged again

    def _init(self, mode: Mode) -> Any:
        import wandb

        wanted = {
            "init_timeout": ONLINE_INIT_SECONDS,
            "finish_timeout": FINISH_SECONDS,  # not in wandb < 0.31: there our own deadline applies
            "x_graphql_retry_max": 1,
            "x_graphql_timeout_seconds": 5.0,
            "silent": True,
            "console": "off",  # our live console must not be captured
            "disable_code": True,
        }
        known = {k: v for k, v in wanted.items() if k in wandb.Settings.model_fields}
        wandb.setup(wandb.Settings(silent=True))
        run = wandb.init(
            project=self._experiment.project,
            name=self._experiment.name,
            id=self._run_dir.id(),
            entity=self._cfg.entity,
            mode=mode,
            dir=str(self._run_dir.root),
            config=self._config,
            resume="allow",
            settings=wandb.Settings(**known),
        )
        run.define_metric("*", step_metric="training_step")
        self._session = Path(run.dir).parent
        return run

    # -- in the background thread -----------------------------------------------------------

    def _mirror(self, metrics: dict[str, float]) -> None:
        """Log a row of metrics.jsonl that W&B lacks, and a table if one is due."""
        step = int(metrics["training_step"])
        if self._traces:
            self._traces.log(metrics)
        if self._run is None or step < self._begin:
            return
        try:
            self._run.log(metrics, step=step)  # W&B merges the rows of a step
            self._last = step
        except Exception as error:
            return self._switch_off(f"it failed at training step {step}", error)
        if not self._takes_tables:
            return
        try:
            if "val/reward" in metrics and (cfg := self._experiment.eval):
                self._log_table("val/samples", step, cfg.split, held_out)
            elif step == 1 or step % TABLE_EVERY == 0:
                self._log_table("train/samples", step, "train", siblings)
        except Exception as error:
            self._takes_tables = False
            self._say(
                f"W&B: no tables any more ({in_a_line(error)}). trajectories/ has everything."
            )

    def _log_table(
        self, key: str, step: int, split: Split, choose: Callable[[list[Any]], list[list[Any]]]
    ) -> None:
        if not self._run_dir.trajectory_file(step, split).exists():
            return
        import wandb

        rows: Any = choose(self._run_dir.read_trajectories(step, split))
        run, table = self._run, wandb.Table(columns=list(COLUMNS), data=rows)
        within(MEDIA_SECONDS, lambda: run.log({key: table}, step=step))

    # -- the end ---------------------------------------------------------------------------

    def _upload_checkpoints(self) -> None:
        """Upload the best and last checkpoints as versions of an artifact named by the run's id."""
        named = checkpoints_to_upload(self._experiment, self._run_dir)
        if not named:
            return
        if self._mode == "online" and not answers(base_url()):
            return self._say_not_uploaded(named, "the server does not answer")
        try:
            artifacts = [self._log_artifact(step, names) for step, names in named.items()]
            for artifact in artifacts if self._mode == "online" else []:
                self._wait_for(artifact)
        except Exception as error:
            self._say_not_uploaded(named, in_a_line(error))

    def _log_artifact(self, step: int, names: list[str]) -> Any:
        import wandb

        checkpoint = self._run_dir.checkpoint(step)
        facts = {
            "step": step,
            "val_reward": read_progress(checkpoint).val_reward,
            "base": self._experiment.model.base,
        }
        artifact = wandb.Artifact(self._run_dir.id(), type="model", metadata=facts)
        for file in weight_files(checkpoint):
            kept = file if self._mode == "online" else keep_file(self._session, file)
            artifact.add_file(str(kept), name=file.name, policy="immutable", skip_cache=True)
        run, aliases = self._run, [*names, f"step-{step}"]
        return within(MEDIA_SECONDS, lambda: run.log_artifact(artifact, aliases=aliases))

    def _wait_for(self, artifact: Any) -> None:
        """Wait until an artifact is uploaded. Raises DeadlineError if the server is silent."""
        size = sum(entry.size for entry in artifact.manifest.entries.values())
        self._say(f"W&B: uploading checkpoint {artifact.metadata['step']} ({size / 1e6:,.1f} MB)")
        within(
            LIFE_SIGN_SECONDS,
            lambda: artifact.wait(timeout=UPLOAD_SECONDS),  # wait only once: wait() cancels itself
            more=lambda: answers(base_url()),
        )

    def _say_not_uploaded(self, named: dict[int, list[str]], why: str) -> None:
        step, names = next(iter(named.items()))
        place = [self._cfg.entity, self._experiment.project, self._run_dir.id()]
        target = "/".join(part for part in place if part)
        aliases = " ".join(f"--alias {alias}" for alias in [*names, f"step-{step}"])
        path = shlex.quote(os.path.relpath(self._run_dir.checkpoint(step)))
        self._say(
            f"W&B: not all checkpoints are uploaded ({why}). By hand: "
            f"wandb artifact put --type model --name {target} {aliases} {path}"
        )

    def _switch_off(self, what: str, error: Exception) -> None:
        self._run = None
        _kill_core()
        self._say(f"W&B is switched off, {what}: {in_a_line(error)}. metrics.jsonl has everything.")


def _import_wandb() -> None:
    # wandb's own error reports block the exit for 20 s on a dead network; read at import
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb  # noqa: F401


def _finish(run: Any, exit_code: int) -> None:
    import wandb

    run.finish(exit_code=exit_code)
    wandb.teardown()
    if getattr(run, "_finish_timed_out", False):
        raise TimeoutError(f"not done after {FINISH_SECONDS:.0f} s")


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Call `within`, and kill wandb-core if the deadline expires.

    The kill ends the call, and keeps wandb's exit hook from waiting for it again.
    """
    try:
        return within(seconds, call)
    except DeadlineError:
        _kill_core()
        raise


def _teardown() -> None:
    import wandb

    with suppress(Exception):
        _within(SLACK_SECONDS, wandb.teardown)


def _kill_core() -> None:
    """Kill the wandb-core process. wandb has no public way to exit without waiting for it."""
    wandb = sys.modules.get("wandb")
    if wandb is None:
        return
    connection = wandb.sdk.wandb_setup.singleton()._connection
    process = getattr(getattr(connection, "_proc", None), "_process", None)
    if process is not None:
        process.kill()
        # Raises ConnectionResetError after removing its exit hook; wandb < 0.31 exits the program.
        with suppress(Exception, SystemExit):
            wandb.teardown()
