"""`art certify`: check the implementation of a base's architecture before renting a GPU."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.errors import EXIT_FAILED, UsageError
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.preflight.certify.report import Certificate


def certify(
    base: Annotated[str, typer.Argument(help="A hub id, or a folder with a model.")],
    as_json: inputs.AsJson = False,
) -> None:
    """Try a base without its weights: a small random model of its architecture is made from its
    config.json, and log-probabilities, gradients, the engine, an adapter, merged weights and the
    chat template are held against transformers'. Seconds, on a CPU. Exit code 1 where something
    differs.

    Example:  art certify Qwen/Qwen2.5-7B-Instruct
    """
    if Path(base).suffix in (".yaml", ".yml"):
        raise UsageError(f"{base} is a config; name its model.base: a hub id or a folder")
    inputs.read_dotenv(Path(".env"))
    inputs.progress("loading torch and transformers")
    from art_cli.preflight.certify.report import certify as examine

    found = examine(base, inputs.progress)
    if as_json:
        rows = [asdict(trial) for trial in found.trials]
        say(
            json.dumps(
                {"base": base, "passed": not found.failed, "trials": rows, "vllm": found.vllm}
            )
        )
    else:
        _print(found)
    if found.failed:
        raise typer.Exit(EXIT_FAILED)


def _print(found: Certificate) -> None:
    from rich.table import Table

    from art_cli.terminal.screen import Screen

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for trial in found.trials:
        table.add_row(trial.name, trial.status, trial.what)
    screen = Screen()
    screen.print(table)
    if found.vllm:
        screen.print(f"\nvLLM would be started with:\n{found.vllm}", soft_wrap=True)
    if found.failed:
        names = ", ".join(dict.fromkeys(trial.name for trial in found.failed))
        screen.print(f"\n{found.base} is not certified: {names}", soft_wrap=True)
    elif not found.is_whole:
        screen.print(f"\n{found.base}: what could be tried has passed", soft_wrap=True)
    else:
        screen.print(f"\n{found.base} is certified", soft_wrap=True)
