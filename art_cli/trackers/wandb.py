"""Weights & Biases. It mirrors metrics.jsonl and may never stop, slow or fail a run.

W&B's own defaults block for 100 s on a dead network and for longer at the end of a run, so every
call here has a deadline (the wandb-core process is killed when one expires) and the fallback is an
offline run that `wandb sync` uploads later: nothing that was logged is lost.
"""

from __future__ import annotations

import netrc
import os
import shlex
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from art_cli.config.schema import WandbConfig
from art_cli.errors import PreflightError

T = TypeVar("T")
Mode = Literal["online", "offline", "disabled"]

PROBE_SECONDS = 2.0
ONLINE_INIT_SECONDS = 10.0
OFFLINE_INIT_SECONDS = 5.0
FINISH_SECONDS = 12.0
SLACK_SECONDS = 2.0  # wandb's own deadline should expire before ours
EXIT_CODES = {"done": 0, "failed": 1, "interrupted": 255}  # W&B shows 255 as "killed"

DEFAULT_URL = "https://api.wandb.ai"


class WandbTracker:
    """One W&B run. After the constructor no method raises or blocks for long.

    `config` is what W&B shows as the run's config: it must hold no resolved secrets. `run_id` ties
    a resumed run to its first part. Raises PreflightError for mode `online` without a key.
    """

    def __init__(
        self,
        cfg: WandbConfig,
        *,
        project: str,
        name: str,
        run_id: str,
        folder: Path,
        config: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._run: Any = None  # a wandb.Run; None: switched off
        self._folder = folder
        self._identity = {"project": project, "name": name, "id": run_id, "entity": cfg.entity}
        self._config = config
        self._mode, reason = choose_mode(cfg)
        if self._mode == "online":
            reason = self._start_online()
        if self._mode == "offline":
            self._start_offline(reason)

    def log(self, metrics: dict[str, float]) -> None:
        """Hand the metrics to wandb-core, which sends them in its own time."""
        if self._run is None:
            return
        try:
            self._run.log(metrics)
        except Exception as error:
            self._switch_off(f"it failed at training step {metrics.get('training_step')}", error)

    def finish(self, state: str) -> None:
        """Wait for the upload, but not for long."""
        if self._run is None:
            return
        run, self._run = self._run, None
        sync = sync_line(Path(run.dir).parent)
        try:
            _within(FINISH_SECONDS + SLACK_SECONDS, lambda: _finish(run, EXIT_CODES.get(state, 1)))
        except Exception as error:
            _kill_core()
            self._say(f"W&B: the upload is not complete ({_short(error)}). The rest: {sync}")
            return
        if self._mode == "offline":
            self._say(f"W&B: this run was logged offline. Upload it: {sync}")

    def _start_online(self) -> str:
        """Try to go online; after a failure the mode is offline and the reason is returned."""
        url = base_url()
        reason = f"{url} does not answer"
        if _answers(url):
            try:
                self._run = _within(
                    ONLINE_INIT_SECONDS + SLACK_SECONDS, lambda: self._init("online")
                )
                self._say(f"W&B: {self._run.url}")
                return ""
            except Exception as error:
                reason = f"{url} does not take the run: {_short(error)}"
                _teardown()  # else the id is "in use" for the offline run
        self._mode = "offline"
        return reason

    def _start_offline(self, reason: str) -> None:
        try:
            self._run = _within(OFFLINE_INIT_SECONDS, lambda: self._init("offline"))
        except Exception as error:
            return self._switch_off("it cannot start", error)
        self._say(f"W&B: offline ({reason}). Upload later: {sync_line(Path(self._run.dir).parent)}")

    def _init(self, mode: Mode) -> Any:
        # wandb's reports about itself block the exit for 20 s on a dead network; read at import
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        wanted = {
            "init_timeout": ONLINE_INIT_SECONDS,
            "finish_timeout": FINISH_SECONDS,  # not in wandb < 0.31: there our own deadline holds
            "x_graphql_retry_max": 1,
            "x_graphql_timeout_seconds": 5.0,
            "silent": True,
            "console": "off",  # our live console must not be captured
            "disable_code": True,
        }
        known = {k: v for k, v in wanted.items() if k in wandb.Settings.model_fields}
        wandb.setup(wandb.Settings(silent=True))
        run = wandb.init(
            **self._identity,
            mode=mode,
            dir=str(self._folder),
            config=self._config,
            resume="allow",
            settings=wandb.Settings(**known),
        )
        run.define_metric("*", step_metric="training_step")
        return run

    def _switch_off(self, what: str, error: Exception) -> None:
        self._run = None
        _kill_core()
        self._say(f"W&B is switched off, {what}: {_short(error)}. metrics.jsonl has everything.")


def choose_mode(cfg: WandbConfig) -> tuple[Mode, str]:
    """What to do, and why where it is not the best. Does not import wandb or touch the network.

    Raises PreflightError for mode `online` without a key: call it before anything costly starts.
    """
    wish = cfg.mode
    if wish == "auto" and os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return (
            ("offline", "WANDB_MODE") if os.environ["WANDB_MODE"] == "offline" else ("disabled", "")
        )
    if wish in ("offline", "disabled"):
        return wish, f"track.wandb.mode is {wish}"
    if has_key():
        return "online", ""
    if wish == "auto":
        return "offline", "no key: neither WANDB_API_KEY nor `wandb login`"
    raise PreflightError(
        f"track.wandb.mode is online but there is no key for {base_url()}. "
        "Set WANDB_API_KEY, run `wandb login`, or use mode auto, which logs offline without a key."
    )


def base_url() -> str:
    """The W&B server."""
    return os.environ.get("WANDB_BASE_URL", DEFAULT_URL).rstrip("/")


def has_key() -> bool:
    """Whether wandb will find a key: in the environment, or where `wandb login` writes it."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    candidates = [os.environ.get("NETRC"), "~/.netrc", "~/_netrc"]
    for path in (Path(name).expanduser() for name in candidates if name):
        if path.exists():
            try:
                return netrc.netrc(path).authenticators(urlsplit(base_url()).netloc) is not None
            except (netrc.NetrcParseError, OSError):
                return False
    return False


def sync_line(run_dir: Path) -> str:
    """The command that uploads a run whose data is on this disk, the parts before it included."""
    parts = list(run_dir.parent.glob("offline-run-*"))
    folder = shlex.quote(os.path.relpath(run_dir.parent))
    if run_dir not in parts:
        return f"wandb sync --include-online {folder}/{run_dir.name}"
    return f"wandb sync {folder}/{run_dir.name if len(parts) == 1 else 'offline-run-*'}"


def _answers(url: str) -> bool:
    """Whether there is an HTTP server, in time. Any answer counts; name resolution can hang too."""

    def ask() -> bool:
        try:
            urllib.request.urlopen(url, timeout=PROBE_SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
        return True

    try:
        return _within(PROBE_SECONDS, ask)
    except Exception:  # of many kinds: DNS, TLS, refused, too late, not HTTP
        return False


def _finish(run: Any, exit_code: int) -> None:
    import wandb

    run.finish(exit_code=exit_code)
    wandb.teardown()
    if getattr(run, "_finish_timed_out", False):
        raise TimeoutError(f"not done after {FINISH_SECONDS:.0f} s")


def _within(seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`. Raises its error, or TimeoutError when it takes too long.

    A call that is late is stuck in wandb-core: that process is killed, which ends the call and
    keeps wandb's exit hook from waiting for it once more.
    """
    box: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            box.append(call())
        except BaseException as error:  # wandb raises SystemExit and its own BaseExceptions
            errors.append(error)

    thread = threading.Thread(target=work, name="wandb-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if box:
        return box[0]
    if not errors:
        _kill_core()
        raise TimeoutError(f"no answer after {seconds:.0f} s")
    if isinstance(errors[0], Exception):
        raise errors[0]
    raise RuntimeError(f"{type(errors[0]).__name__}: {errors[0]}") from errors[0]


def _teardown() -> None:
    import wandb

    with suppress(Exception):
        _within(SLACK_SECONDS, wandb.teardown)


def _kill_core() -> None:
    """End the wandb-core process. wandb has no public way to leave without waiting for it."""
    wandb = sys.modules.get("wandb")
    if wandb is None:
        return
    connection = wandb.sdk.wandb_setup.singleton()._connection
    process = getattr(getattr(connection, "_proc", None), "_process", None)
    if process is not None:
        process.kill()
        with suppress(Exception):  # ConnectionResetError, after it has removed its exit hook
            wandb.teardown()


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
