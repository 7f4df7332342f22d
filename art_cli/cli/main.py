"""`art`: the commands, and how an error ends the program."""

from __future__ import annotations

import os
import sys

import typer

from art_cli.cli import cluster, deploy, doctor, envs, eval, init, judge, run, runs, validate
from art_cli.errors import EXIT_INTERRUPTED, ArtError, Interrupted
from art_cli.printed import say

app = typer.Typer(
    name="art",
    help="Train multi-turn, tool-using LLM agents with GRPO from one YAML file.\n\n"
    "Start here:  art run configs/quickstart.yaml",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # a third of the start-up time
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("eval")(eval.evaluate_command)
app.command("deploy")(deploy.deploy)
app.command("undeploy")(deploy.undeploy)
app.command("deployments")(deploy.deployments)
app.command("validate")(validate.validate)
app.command("doctor")(doctor.doctor)
app.add_typer(judge.app, name="judge")
app.add_typer(envs.app, name="envs")
app.command("init")(init.init)
app.command("runs")(runs.runs)
app.command("launch-cluster")(cluster.launch_cluster)
app.command("clusters")(cluster.clusters)
app.add_typer(cluster.app, name="cluster")
app.command("cancel")(cluster.cancel)


def main() -> None:
    """The entry point `art`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except ArtError as e:
        say(str(e) if isinstance(e, Interrupted) else f"error: {e}", file=sys.stderr)
        sys.exit(e.exit_code)
    except KeyboardInterrupt:
        say("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # `art runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
