"""Inputs that the commands share: config files with overrides, a .env file, a line of progress."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.errors import ConfigError, UsageError
from art_cli.system.files import read_text
from art_cli.system.progress import Pulse
from art_cli.terminal.text import masked, replace_line, say, visible

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.runs.directory import RunDir

SELDOM = 30.0  # seconds between lines of progress in a log, where there is something new
SILENCE = 10.0  # seconds, before what goes on is told again
# Settings whose value names code or a program of the user's. What is built in has a plain name,
# without a colon.
RUNS_CODE = re.compile(
    r"(env\.(use|python)|agent\.(function|python|command\.\d+)|judge\.command\.\d+): .+|"
    r"(train\.(loss|advantage|curriculum)|(\w+|track\.custom\.[\w-]+)\.use): .*:.*",
    re.DOTALL,
)
OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")

# What several commands take.
Configs = Annotated[
    list[str], typer.Argument(help="Config files, merged in order, and key=value overrides.")
]
RunsDir = Annotated[Path, typer.Option(help="Where runs are kept.")]
Clusters = Annotated[
    list[str] | None, typer.Option("--on", help="A cluster to train on; several: side by side.")
]
Python = Annotated[
    str | None,
    typer.Option(metavar="PYTHON", help="The interpreter that the env runs in: env.python."),
]
AllowWrites = Annotated[
    bool,
    typer.Option("--allow-writes", help="Call tools that may write to a server's own data, too."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

_last_told = time.monotonic()
_doing, _began = "", 0.0  # what `progress` was told last, and when it began
_pulse: Pulse | None = None


def load(arguments: list[str], *, is_run: bool = False) -> LoadedExperiment:
    """Return the experiment of `CONFIG... key=value...`, with its env's settings.

    With `is_run`, the config is that of a run directory that was named. Where it starts programs of
    the user's, this process is hidden from them. Raises ConfigError.
    """
    from art_cli.config.load import load_experiment
    from art_cli.rollout.env_class import env_in
    from art_cli.system.guard import hide

    read_dotenv(Path(".env"))
    # os.path: a long override is no name of a file, which Path takes for an error.
    overrides = [a for a in arguments if OVERRIDE.match(a) and not os.path.exists(a)]
    paths = [Path(a) for a in arguments if a not in overrides]
    for path in paths:
        _tell_code(path, is_run)
    loaded = load_experiment(paths, overrides, plugin_config=lambda *use: env_in(*use).Config)
    if loaded.experiment.agent.use == "program":
        hide()  # early: what has read a variable by now may point into the block that is emptied
    return loaded


def _tell_code(config: Path, is_run: bool) -> None:
    """Print which files contain code, before it runs, if another account owns the run directory."""
    from art_cli.config.problem import dotted
    from art_cli.config.yaml import leaves, read_document
    from art_cli.runs.directory import RunDir
    from art_cli.runs.maker import holds_run, is_own

    run = RunDir(config.parent)
    if config.name != run.config.name or not (is_run or holds_run(run)) or is_own(run):
        return
    with contextlib.suppress(ConfigError):  # reported later
        named = dict(leaves(read_document(config)))
        settings = (f"{dotted(path)}: {value}" for path, value in named.items() if value)
        code = [setting for setting in settings if RUNS_CODE.fullmatch(setting)]
        say(
            f"warning: {run.root} was not made by `art run` of this account on this machine. What "
            f"its config.yaml names is run as you: {', '.join(code)}",
            file=sys.stderr,
        )


def check_base(loaded: LoadedExperiment, run: RunDir | None = None) -> list[str]:
    """Return notes about the base for the user, before it is loaded; see preflight.

    `run` is the run to resume, if any. Reading a config.json imports modules for seconds, so `tiny`
    skips it. Raise ConfigError, also for a user's own loss or advantage with a wrong signature.
    """
    from art_cli.deploy.user_target import check_target_class
    from art_cli.preflight.user_code import check_own_code, located

    known = check_own_code(loaded, run)
    if (deploy := loaded.experiment.deploy) and ":" in deploy.use:
        located(loaded, "deploy", partial(check_target_class, deploy.use, deploy.args))
    if loaded.experiment.model.base == "tiny":
        return known
    progress(f"looking at the base {loaded.experiment.model.base}")
    from art_cli.preflight.base_model import check_base as check

    found = check(loaded)
    progress("")
    return [*known, *found]


def open_run(path: Path, overrides: Sequence[str] = ()) -> tuple[LoadedExperiment, RunDir]:
    """Return an existing run and its experiment. Raise UsageError or ConfigError."""
    from art_cli.runs.directory import RunDir

    run = RunDir.open(path.resolve())
    loaded = load([str(run.config), *overrides], is_run=True)
    named = f"{loaded.experiment.project}/{loaded.experiment.name}"
    if f"{run.root.parent.name}/{run.root.name}" != named:
        raise UsageError(
            f"{run.root} was moved: its config says {named}. Move it back to RUNS/{named}"
        )
    return loaded, run


def open_target(target: list[str], runs_dir: Path) -> tuple[LoadedExperiment, RunDir, bool]:
    """Return the experiment, its run directory, and whether the target is a run (not a config)."""
    from art_cli.runs.directory import RunDir

    if os.path.isfile(Path(target[0]) / "config.yaml"):
        return *open_run(Path(target[0]), target[1:]), True
    if not os.path.exists(target[0]) or os.path.isdir(target[0]):
        raise UsageError(
            f"{target[0]} is neither a run directory nor a config file; `art runs` lists the runs"
        )
    loaded = load(target)
    cfg = loaded.experiment
    return loaded, RunDir(runs_dir / cfg.project / cfg.name), False


def on_cluster(name: str | None) -> list[str]:
    """Return the overrides that `--on NAME` stands for."""
    return [] if name is None else ["backend.use=skypilot", f"backend.cluster={name}"]


def confirm(question: str) -> bool:
    """Ask the user yes or no. Raise UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask at: add --yes")
    return typer.confirm(visible(masked(question)))


def progress(text: str, done: int | None = None, total: int | None = None) -> None:
    """Report progress: on a terminal one line that the next one replaces, in a log a line at times.

    The line disappears when the count reaches its total, or with `progress("")`. Until then it is
    repeated after ten seconds without a report, with the elapsed time.
    """
    global _doing, _began, _pulse
    count = f" {done}/{total}" if total else ""
    if text != _doing:
        _doing, _began = text, time.monotonic()
    if text and _pulse is None:
        _pulse = Pulse(_tell_silence)
        _pulse.start()
    if text and (sys.stderr.isatty() or time.monotonic() - _last_told > SELDOM):
        _tell(f"{text}{count}")
    if not text or (total and done == total):
        _doing = ""
        if sys.stderr.isatty():
            replace_line("")


def _tell_silence() -> None:
    now = time.monotonic()
    if _doing and now - _last_told >= SILENCE:
        _tell(f"{_doing} ({now - _began:.0f} s)")


def _tell(line: str) -> None:
    global _last_told
    _last_told = time.monotonic()
    if sys.stderr.isatty():
        replace_line(line)
    else:
        say(line, file=sys.stderr)


def read_dotenv(path: Path) -> None:
    """Add KEY=VALUE lines of a file to the environment, without overriding variables."""
    if not path.is_file():
        return
    try:
        lines = read_text(path).split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"cannot read {path}: {e}") from None
    for line in lines:
        key, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not key.startswith("#") and value.strip():
            os.environ.setdefault(key.strip(), value.strip().strip("'\""))
