"""`art eval`: compare the policies of a run with other models on the same task."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.cli.inputs import progress
from art_cli.config.sections.llm import REFERENCE
from art_cli.errors import BudgetError, Interrupted
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.evaluation.session import EvalSession, Policies
    from art_cli.llms.judges.base import Judge
    from art_cli.llms.services import RunServices
    from art_cli.runs.directory import RunDir

Names = list[str] | None
WHO = (
    "More candidates: untrained, base (before SFT), best, last, a step, random (turns of "
    "the demonstrations, drawn at random: what chance earns), or a model as litellm names it "
    "(openai/gpt-4.1), with settings behind commas: "
    "openai/NAME,api_base=http://HOST/v1,api_key_env=KEY,prices.input=1,prices.output=4,"
    "params.temperature=0. May be repeated. With a config, only those named play."
)
SMALLEST_BUDGET = 1e-9  # US dollars: what is known from before may still be said


def evaluate_command(
    target: Annotated[
        list[str], typer.Argument(help="A run directory, or a config and key=value overrides.")
    ],
    checkpoint: Annotated[
        Names, typer.Option(help="best, last, or a step; default: best. May be repeated.")
    ] = None,
    candidate: Annotated[Names, typer.Option(help=WHO)] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Plays of each scenario: pass^1 to pass^TRIALS.")
    ] = 1,
    split: Annotated[str, typer.Option(help="val or test.")] = "val",
    episodes: Annotated[int, typer.Option(min=1, help="How many scenarios.")] = 128,
    baseline: Annotated[
        str | None, typer.Option(help="The candidate to compare with. Default: the first.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="An attempt passes with at least this reward. Default: where the env's metric "
            "`success` is 1, or, without that metric, with a reward of at least 1."
        ),
    ] = None,
    max_usd: Annotated[
        float | None,
        typer.Option(min=0, help="What this command may spend on models, simulated users' too."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with every conversation behind the numbers.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Play again what was played before.")
    ] = False,
    runs_dir: inputs.RunsDir = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """Compare policies and other models on held-out scenarios.

    A run brings its untrained policy and a checkpoint along. Each finished episode is kept: the
    same command goes on after a kill, and costs nothing when repeated.

    Example:  art eval runs/default/quickstart --candidate openai/gpt-4.1 --trials 4 --max-usd 5
    """
    if split not in ("val", "test"):
        raise typer.BadParameter("expected val or test", param_hint="--split")
    from art_cli.cli.tables import print_comparison
    from art_cli.evaluation.candidates import baseline_of, default_names, find_candidates
    from art_cli.evaluation.session import EvalSession
    from art_cli.system.files import atomic_write, json_line
    from art_cli.view.evaluation import page

    loaded, folder, is_run = inputs.open_target(target, runs_dir)
    cfg, run = loaded.experiment, folder if folder.config.is_file() else None
    names = default_names(run, is_run, checkpoint or [], candidate or [])
    candidates = find_candidates(names, cfg, run)
    compared_with = baseline_of(candidates, baseline)
    session = EvalSession.open(
        loaded,
        folder,
        candidates,
        split=split,  # type: ignore[arg-type]
        episodes=episodes,
        trials=trials,
        fresh=fresh,
    )
    for line in (line for r in session.records for line in r.store.damaged):
        say(f"warning: {line}", file=sys.stderr)
    _play(session, loaded, run, compared_with, max_usd)
    comparison = session.result(compared_with, threshold)
    rows = json_line(comparison.rows())
    atomic_write(folder.evaluation(session.task.split), rows)
    if html:
        atomic_write(html, page(comparison, f"{cfg.project}/{cfg.name} · {cfg.env.use}"))
    if as_json:
        say(rows, end="")
    else:
        print_comparison(comparison)
        if html:
            say(f"\nEvery conversation: {html}")
    session.check()


def _play(
    session: EvalSession,
    loaded: LoadedExperiment,
    run: RunDir | None,
    baseline: str,
    max_usd: float | None,
) -> None:
    """Play the missing episodes and judge those without a score. Errors say how to continue."""

    def open_policies(services: RunServices | None) -> Policies:
        progress("loading torch and transformers")
        from art_cli.evaluation.policies import RunPolicies

        return RunPolicies(loaded, run, services, progress)

    async def play() -> None:
        left = await session.play(open_policies, max_usd, progress)
        if unscored(session.records):
            tools = await offered_tools(session.task.env_class, session.task.settings)
            async with _judge(loaded, run, left) as judge:
                await judge_pairs(session.records, baseline, judge, tools, progress)

    from art_cli.evaluation.pairwise import judge_pairs, unscored
    from art_cli.rollout.first_episode import offered_tools

    try:
        asyncio.run(play())
    except BudgetError as e:
        raise BudgetError(f"{e}.\n{_kept(session)}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"stopped. {_kept(session)}") from None


@contextlib.asynccontextmanager
async def _judge(
    loaded: LoadedExperiment, run: RunDir | None, max_usd: float | None
) -> AsyncIterator[Judge | None]:
    """Open the config's judge, if it has one; it may spend `max_usd` at most."""
    from art_cli.evaluation.rejudge import open_judge

    cfg = loaded.experiment.judge
    if cfg is None:
        yield None
        return
    if max_usd is not None and cfg.model != REFERENCE:
        left = max(max_usd, SMALLEST_BUDGET)
        cfg = replace(cfg, max_usd=min(left, cfg.max_usd or left))
    async with open_judge(cfg, loaded, run, progress) as judge:
        yield judge


def _kept(session: EvalSession) -> str:
    again = [word for word in sys.argv[1:] if word != "--fresh"]
    return (
        f"{session.num_finished} of {session.num_episodes} episodes are finished and kept. "
        f"Go on: {shlex.join(['art', *again])}"
    )
