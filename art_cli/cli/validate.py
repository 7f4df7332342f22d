"""`art validate`: is a config right, before anything costs time."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.config.schema import Experiment
    from art_cli.env import Env
    from art_cli.types import Message


def validate(
    config: Annotated[
        list[str], typer.Argument(help="Config files, merged in order, and key=value overrides.")
    ],
    ping: Annotated[bool, typer.Option("--ping", help="Ask the judge one question.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check a config and open one episode of its env. Loads no model, asks nobody but for --ping.

    Example:  art validate configs/quickstart.yaml train.steps=50
    """
    from art_cli.agents.make import make_runner
    from art_cli.errors import ArtError, ConfigError
    from art_cli.preflight import check_env
    from art_cli.registry import env_class

    async def check() -> LoadedExperiment:
        loaded = inputs.load(config)
        env = env_class(loaded.experiment.env.use)
        make_runner(loaded.experiment.agent)
        opening = await check_env(env, loaded.env_settings)
        if loaded.experiment.judge:
            await _check_judge(loaded.experiment, opening, env, ping)
        return loaded

    try:
        loaded = asyncio.run(check())
    except ArtError as e:
        if as_json:
            problems = e.problems if isinstance(e, ConfigError) else [str(e)]
            print(json.dumps({"valid": False, "problems": problems}))
            raise typer.Exit(e.exit_code) from None
        raise
    name = f"{loaded.experiment.project}/{loaded.experiment.name}"
    print(json.dumps({"valid": True, "run": name}) if as_json else f"ok: {name}")


async def _check_judge(cfg: Experiment, opening: list[Message], env: type[Env], ping: bool) -> None:
    from art_cli.judges.make import ask_once, check_setup, make_judge
    from art_cli.tools import schemas_of

    assert cfg.judge
    check_setup(cfg.judge)
    if not ping or cfg.judge.model == "reference":
        return
    judge = await make_judge(cfg.judge, cfg.seed)
    try:
        await ask_once(judge, opening, schemas_of(env))
    finally:
        await judge.close()
