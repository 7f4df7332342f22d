"""`art doctor`: check whether this machine can run art, and list what is missing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from art_cli.cli import inputs
from art_cli.errors import EXIT_PREFLIGHT
from art_cli.terminal.text import say

INDENT = 19  # columns before the text of a result


def doctor(
    config: Annotated[
        list[str] | None, typer.Argument(help="Config files and overrides of what is to be run.")
    ] = None,
    runs_dir: Annotated[Path, typer.Option(help="Where runs are to be kept.")] = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """Look at this machine: GPU, driver, packages that do not go together, disk, memory, keys (by
    name only), services. With a config: what of it cannot run here; then the exit code is 3.

    Example:  art doctor configs/gpu-80gb.yaml
    """
    from art_cli.cli.check_results import tell_result
    from art_cli.preflight.doctor import examine
    from art_cli.terminal.screen import Screen

    inputs.read_dotenv(Path(".env"))
    loaded = inputs.load(config) if config else None
    results, screen = [], Screen()
    for result in examine(loaded, runs_dir):
        results.append(result)
        if not as_json:
            tell_result(screen, result, INDENT)
    failed = [f for f in results if f.status == "failed"]
    if as_json:
        rows = [{k: v for k, v in asdict(f).items() if k != "where"} for f in results]
        say(json.dumps({"ready": not failed, "findings": rows}))
    elif loaded and failed:
        say(f"{loaded.experiment.name} cannot run here", file=sys.stderr)
    if loaded and failed:
        raise typer.Exit(EXIT_PREFLIGHT)
