"""`art validate`: is a config right, before anything costs time."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from art_cli.cli import inputs


def validate(
    config: Annotated[
        list[str], typer.Argument(help="Config files, merged in order, and key=value overrides.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check a config and open one episode of its env. Loads no model.

    Example:  art validate configs/quickstart.yaml train.steps=50
    """
    from art_cli.errors import ArtError, ConfigError
    from art_cli.preflight import check_env
    from art_cli.registry import env_class

    try:
        loaded = inputs.load(config)
        asyncio.run(check_env(env_class(loaded.experiment.env.use), loaded.env_settings))
    except ArtError as e:
        if as_json:
            problems = e.problems if isinstance(e, ConfigError) else [str(e)]
            print(json.dumps({"valid": False, "problems": problems}))
            raise typer.Exit(e.exit_code) from None
        raise
    name = f"{loaded.experiment.project}/{loaded.experiment.name}"
    print(json.dumps({"valid": True, "run": name}) if as_json else f"ok: {name}")
