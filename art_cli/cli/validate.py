"""`art validate`: check a config before it costs time or money."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.config.sections.llm import REFERENCE
from art_cli.errors import EXIT_PREFLIGHT
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.config.schema import Experiment
    from art_cli.preflight.memory.fit import Forecast
    from art_cli.rollout.first_episode import FirstEpisode
    from art_cli.terminal.screen import Screen

FITS = {"fits": "green", "may run out": "yellow", "does not fit": "bold red"}


def validate(
    config: inputs.Configs,
    ping: Annotated[bool, typer.Option("--ping", help="Ask the judge one question.")] = False,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="A card (H100, L4, ...) or a size (24GB) to fit on.")
    ] = None,
    as_json: inputs.AsJson = False,
) -> None:
    """Check a config, open one episode of its env, and say how much GPU memory the run takes: on
    the GPU here, or on the one that you name. Loads no model, asks nobody but for --ping. Exit code
    3 where it certainly does not fit.

    Example:  art validate configs/retail-7b.yaml train.steps=50 --gpu H100
    """
    from art_cli.errors import ArtError, ConfigError
    from art_cli.preflight.memory.fit import forecast
    from art_cli.preflight.memory.gpus import named, present
    from art_cli.rollout.agents.build import make_runner
    from art_cli.rollout.env_class import env_of
    from art_cli.rollout.first_episode import check_env
    from art_cli.runs.trackers.build import check_trackers
    from art_cli.terminal.screen import Screen

    async def check() -> tuple[LoadedExperiment, Forecast | None, list[str]]:
        card = named(gpu) if gpu else next(iter(present()), None)
        loaded = inputs.load(config)
        env = env_of(loaded.experiment.env)
        if loaded.experiment.backend.use == "local":
            check_trackers(loaded)
        first = await check_env(env, loaded.env_settings)
        known = inputs.check_base(loaded)  # tells the user's own code by its line of the config
        make_runner(loaded.experiment.agent)
        if loaded.experiment.judge:
            await _check_judge(loaded.experiment, first, ping)
        return loaded, forecast(loaded, card), [*known, *first.warnings]

    try:
        loaded, memory, warnings = asyncio.run(check())
    except ArtError as e:
        if as_json:
            problems = e.problems if isinstance(e, ConfigError) else [str(e)]
            say(json.dumps({"valid": False, "problems": problems}))
            raise typer.Exit(e.exit_code) from None
        raise
    name = f"{loaded.experiment.project}/{loaded.experiment.name}"
    if as_json:
        found = memory and memory.as_json()
        row = {"valid": True, "run": name, "memory": found, "warnings": warnings}
        say(json.dumps(row))
    else:
        screen = Screen()
        if memory:
            _print_memory(memory, screen)
        for line in warnings:
            screen.wrap(f"warning: {line}", "yellow")
        screen.wrap(f"ok: {name}", "green")
    if memory and memory.is_impossible:
        raise typer.Exit(EXIT_PREFLIGHT)


def _print_memory(memory: Forecast, console: Screen) -> None:
    from rich.table import Table
    from rich.text import Text

    from art_cli.preflight.memory.estimate import GIB

    if memory.estimate is None:
        return console.wrap(f"memory: unknown. {memory.unknown}", "yellow")
    gpu = memory.gpu
    held = f"{gpu.name}, {gpu.size / GIB:.1f} GiB" if gpu else "a GPU"
    table = Table(title=f"GiB at most on {held}", title_justify="left", box=None, pad_edge=False)
    table.add_column(memory.base)
    table.add_column()
    engine = "rollout" if memory.job.shares_gpu else "engine's GPUs, each"
    for name in (engine, "update"):
        table.add_column(name, justify="right")
    for part in memory.estimate.parts:
        sizes = (f"{size / GIB:.1f}" if size else "-" for size in (part.rollout, part.update))
        table.add_row(part.name, part.note, *sizes)
    totals = [memory.estimate.total(moment) / GIB for moment in ("rollout", "update")]
    table.add_row("in all", "", *(f"{total:.1f}" for total in totals))
    if gpu:
        fits = (memory.estimate.fit(moment) or "" for moment in ("rollout", "update"))
        table.add_row("", "", *(Text(fit, FITS.get(fit, "")) for fit in fits))
    console.show(table)
    for line in memory.lines():
        console.wrap(line)
    if gpu is None:
        console.wrap("There is no GPU here to hold it against; name one: --gpu H100")
    return None


async def _check_judge(cfg: Experiment, first: FirstEpisode, ping: bool) -> None:
    from art_cli.llms.judges.build import ask_once, check_setup, make_judge

    assert cfg.judge
    check_setup(cfg.judge)
    if not ping or cfg.judge.model == REFERENCE:
        return
    judge = await make_judge(cfg.judge, cfg.seed)
    try:
        await ask_once(judge, first.opening, first.tools)
    finally:
        await judge.close()
