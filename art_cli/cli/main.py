"""`art`: the table of commands, and the conversion of errors into exit codes."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from art_cli.errors import EXIT_INTERRUPTED, ArtError, Interrupted
from art_cli.system.allocator import few_arenas
from art_cli.terminal.text import say

SECTIONS = {  # of --help: name -> its file in art_cli/cli and the function or Typer there, its line
    "Train": {
        "run": ("run:run", "Train the experiment of a config file."),
        "compare": ("compare:compare", "Say which of several configs learns better."),
        "sweep": ("sweep:sweep", "Try values of some keys, and rank them."),
        "init": ("init:init", "Make a folder with an env, a config and tests."),
        "envs": ("envs:app", "List the registered environments, or check one."),
        "scenarios": (
            "scenarios:scenarios",
            "Write tasks for the tools of an MCP server or an HTTP API.",
        ),
        "config": ("config:app", "Say what a key means; the JSON Schema for editors."),
        "validate": (
            "validate:validate",
            "Check a config and its env, and how much memory it takes.",
        ),
        "certify": ("certify:certify", "Try the architecture of a base, before a GPU is rented."),
        "doctor": ("doctor:doctor", "Say what this machine lacks to run a config."),
    },
    "Inspect": {
        "runs": ("runs:runs", "List the runs here: state, step, last and best reward."),
        "why": ("why:why", "Say why the reward of a run rises, or does not."),
        "show": ("show:show", "Show what was said in a step's groups, and what it earned."),
        "view": ("view:view", "Show runs on a page: curves, groups, tokens."),
        "diff": ("diff:diff", "Say in what two runs differ, and which is better."),
        "replay": (
            "replay:replay",
            "Play a stored episode against its env again.",
        ),
        "logs": ("logs:logs", "Print what a run has said, here or on a cluster."),
        "eval": (
            "eval:evaluate_command",
            "Compare policies and other models on held-out scenarios.",
        ),
        "judge": ("judge:app", "Audit a judge, or judge a run again."),
    },
    "Deploy": {
        "deploy": ("deploy:deploy", "Serve a checkpoint, or write it for others to serve."),
        "deployments": (
            "deploy:deployments",
            "List what is deployed: where, in which state, its cost.",
        ),
        "undeploy": ("deploy:undeploy", "End a deployment of a run, and what it costs."),
    },
    "Clusters": {
        "launch-cluster": (
            "cluster:launch_cluster",
            "Rent the machines of a config, and install art.",
        ),
        "clusters": ("cluster:clusters", "List the rented clusters: state, machines, cost."),
        "cluster": ("cluster:app", "Stop a rented cluster, or end it."),
        "cancel": ("cluster:cancel", "End a run on a cluster."),
    },
}
COMMANDS = {name: one for section in SECTIONS.values() for name, one in section.items()}


class Commands(TyperGroup):
    """Commands whose modules are imported on first use, so that `art --help` imports none."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()
        }

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands grouped by purpose, with aligned descriptions."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:<{width}}", line) for name, (_, line) in names.items()]
                )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command, importing its module if so far only its help line is known."""
        name, line, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name and line else None, rest


def _load(name: str) -> Any:
    file, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"art_cli.cli.{file}"), attribute)
    one = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        one.add_typer(found, name=name)
    else:
        one.command(name)(found)
    return get_group(one).commands[name]


app = typer.Typer(
    cls=Commands,
    help="Train multi-turn, tool-using LLM agents with GRPO from one YAML file.\n\n"
    "Start here:  art run configs/quickstart.yaml",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # a third of the start-up time
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"art {version('art-cli')}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Prepare the process for any command."""
    from art_cli.cli.inputs import progress
    from art_cli.keys import register_environment
    from art_cli.system.progress import listen

    register_environment()
    listen(progress)


def _interrupt(signum: int, frame: object) -> None:
    """End immediately on Ctrl-C.

    asyncio would wait for the next `await`, which takes many seconds while a command loads torch.
    It does not replace a handler that is not Python's default.
    """
    raise KeyboardInterrupt


def main() -> None:
    """Run the program `art`."""
    signal.signal(signal.SIGINT, _interrupt)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    few_arenas()
    try:
        app()
    except ArtError as e:
        say(str(e) if isinstance(e, Interrupted) else f"error: {e}", file=sys.stderr)
        sys.exit(e.exit_code)
    except SystemExit as e:  # typer silently turns a KeyboardInterrupt into SystemExit
        if e.code == EXIT_INTERRUPTED:
            say("interrupted", file=sys.stderr)
        raise
    except BrokenPipeError:  # `art runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
