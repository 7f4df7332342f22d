"""`art envs`: list the registered environments, or check one."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.preflight.check_result import CheckResult

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

CONFIGS = (".yaml", ".yml")
INDENT = 26  # columns before the text of a result


@app.callback()
def envs(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the registered environments, or check one. Any other is used by package.module:Class or
    file.py:Class.

    Example:  art envs
    """
    if context.invoked_subcommand:
        return None
    from art_cli.envs.registry import describe, env_class, env_names
    from art_cli.errors import UsageError

    rows = []
    for name, target in env_names().items():
        try:
            line = describe(env_class(name))
        except UsageError as e:  # a broken plugin must not hide the others
            line = f"cannot be loaded: {e}"
        rows.append({"name": name, "class": target, "description": line})
    if as_json:
        return say(json.dumps(rows))
    width = max((len(r["name"]) for r in rows), default=0)
    for r in rows:
        say(f"{r['name']:<{width}}  {r['description']}")
    return None


@app.command("tasks")
def tasks_command(
    use: Annotated[str, typer.Argument(metavar="USE", help="A name, file.py:Class, module:Class.")],
    python: inputs.Python = None,
    as_json: inputs.AsJson = False,
) -> None:
    """List the tasks of an env that has several, each with the setting that chooses it.

    Example:  art envs tasks reasoning_gym
    """
    from art_cli.errors import UsageError, blame
    from art_cli.rollout.env_class import env_in

    env = env_in(use, python)
    try:
        tasks = env.task_list()
    except Exception as e:
        said = str(e) if isinstance(e, ValueError) else blame(e, env)
        raise UsageError(f"{use}: {said}") from e
    if as_json:
        return say(json.dumps([{"task": name, "description": tasks[name]} for name in tasks]))
    if not tasks:
        return say(f"{use} is one task; `art envs` says which", file=sys.stderr)
    width = max(map(len, tasks))
    for name, line in tasks.items():
        say(f"{name:<{width}}  {line}")
    return None


@app.command("check")
def check_command(
    use: Annotated[
        str, typer.Argument(metavar="USE", help="A name, file.py:Class, module:Class or a config.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Of env.args; env.KEY=VALUE for a config."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=2, help="Episodes of each player.")] = 16,
    low: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of gold's reward that idle play may earn."),
    ] = 0.5,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that an episode may take.")] = 60,
    allow_writes: inputs.AllowWrites = False,
    python: inputs.Python = None,
    as_json: inputs.AsJson = False,
) -> None:
    """Check an env as a pull request with it would be; asks no model. Exit code 1 where it fails.

    Example:  art envs check env.py:MyTask level=2

    Example:  art envs check config.yaml env.args.level=2 env.concurrency=4
    """
    from art_cli.cli.check_results import tell_result
    from art_cli.errors import EXIT_FAILED
    from art_cli.preflight.envs.check import check
    from art_cli.preflight.envs.subject import Options
    from art_cli.rollout.env_class import env_of
    from art_cli.terminal.screen import Screen

    found: list[CheckResult] = []
    screen = Screen(file=sys.stdout)
    with contextlib.redirect_stdout(sys.stderr):  # keep the env's output out of the report
        loaded = _load(use, settings or [], python)
        section = loaded.experiment.env
        use, env = section.use, env_of(section)
        options = Options(
            episodes=episodes,
            low=low,
            timeout=timeout,
            concurrency=section.concurrency,
            python=section.python,
            allow_writes=allow_writes,
        )
        for result in check(use, env, loaded.env_settings, options, inputs.progress):
            inputs.progress("")
            found.append(result)
            if not as_json:
                tell_result(screen, result, INDENT)
    num = sum(f.status == "failed" for f in found)
    if as_json:
        say(json.dumps({"env": use, "passed": not num, "findings": [asdict(f) for f in found]}))
    else:
        screen.wrap(f"{use}: {num} failed" if num else f"{use}: passed", "red" if num else "green")
    if num:
        raise typer.Exit(EXIT_FAILED)


def _load(use: str, settings: list[str], python: str | None) -> LoadedExperiment:
    """Return an experiment with the env of this name or config. Raise UsageError."""
    from art_cli.config.load import load_env
    from art_cli.rollout.env_class import env_in

    if use.endswith(CONFIGS):
        given = [f"env.python={json.dumps(python)}"] if python else []
        full = (text if text.startswith("env.") else f"env.args.{text}" for text in settings)
        return inputs.load([use, *given, *full])
    inputs.read_dotenv(Path(".env"))
    env_in(use, python)  # its own error message is enough if the env cannot be found
    own = [text.removeprefix("env.args.") for text in settings]
    return load_env(use, own, lambda *use: env_in(*use).Config, python)
