"""`art judge`: measure how reliable a judge is, and rescore a run with another judge."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_cli.cli import inputs
from art_cli.cli.inputs import progress
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.config.sections.judge import JudgeConfig
    from art_cli.evaluation.rejudge import Rejudged
    from art_cli.llms.judges.audit import Audit, GroupMean
    from art_cli.runs.directory import RunDir

app = typer.Typer(
    help="Audit a judge on stored trajectories, or judge them again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JUDGES_HELP = "A model (openai/gpt-4.1), or a YAML file with a section judge. Default: the config's"
Judges = Annotated[list[str] | None, typer.Option("--judge", help=f"{JUDGES_HELP}.")]
Target = Annotated[
    list[str], typer.Argument(help="A run directory or a config, and key=value overrides.")
]


@app.command("audit")
def audit_command(
    target: Target,
    judge: Judges = None,
    groups: Annotated[int, typer.Option(min=1, help="How many groups to judge.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="How often each, in other orders.")] = 4,
    runs_dir: inputs.RunsDir = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """Say how far a judge can be trusted, before GPU hours are spent on what it says.

    On the stored trajectories of a run; for a config without a run, on those of its untrained
    policy. Several --judge are compared side by side.

    Example:  art judge audit runs/default/quickstart --judge openai/gpt-4.1 --judge openai/o3
    """
    results = asyncio.run(_audit(target, judge or [], groups, repeats, runs_dir))
    if as_json:
        return say(json.dumps([_audit_row(*r) for r in results]))
    return _print_audits(results)


@app.command("rescore")
def rescore_command(
    target: Annotated[list[str], typer.Argument(help="A run directory, and key=value overrides.")],
    judge: Judges = None,
    step: Annotated[int | None, typer.Option(help="Of this step only.")] = None,
    as_json: inputs.AsJson = False,
) -> None:
    """Judge the stored trajectories of a run again, without rolling anything out.

    One line a group goes to RUN/judgements/; the run itself stays as it is.

    Example:  art judge rescore runs/default/quickstart --judge openai/gpt-4.1 --step 40
    """
    rows = asyncio.run(_rescore(target, judge or [], step))
    if as_json:
        return say(json.dumps(rows))
    for row in rows:
        tau = "-" if row["tau"] is None else f"{row['tau']:+.2f}"
        say(
            f"{row['judge']}: {row['groups']} groups judged, {row['failures']} failed, "
            f"${row['usd']:.4f}; Kendall's tau with the rewards that were trained on: {tau}\n"
            f"in {row['file']}"
        )
    return None


def _judge_configs(loaded: LoadedExperiment, judges: list[str]) -> list[tuple[str, JudgeConfig]]:
    """Return name and settings of each --judge, or of the config's judge if there is none."""
    from art_cli.config.sections.judge import JudgeConfig
    from art_cli.errors import UsageError

    own = loaded.experiment.judge
    if not judges:
        if own is None:
            raise UsageError(
                "the config has no judge; name one: --judge openai/gpt-4.1 (any litellm model, or "
                "a YAML file with a section judge)"
            )
        return [(own.model, own)]
    kept = ("rubric", "rubric_file", "max_per_call", "cache", "max_usd")
    base = {k: v for k, v in (dataclasses.asdict(own) if own else {}).items() if k in kept}
    configs: list[tuple[str, JudgeConfig]] = []
    for name in judges:
        if name.endswith((".yaml", ".yml")):
            configs.append((Path(name).stem, _judge_of_file(Path(name))))
        else:
            configs.append((name, JudgeConfig(model=name, **base)))
    return configs


def _judge_of_file(file: Path) -> JudgeConfig:
    """Return the section `judge` of a YAML file, ignoring all other sections."""
    from art_cli.config.load import load_experiment
    from art_cli.errors import UsageError

    needed = ["env.use=any", "model.base=any", "train.steps=0"]  # required keys of a config
    cfg = load_experiment([file], needed).experiment.judge
    if cfg is None:
        raise UsageError(f"{file} has no section judge")
    return cfg


async def _audit(
    target: list[str], judges: list[str], num: int, repeats: int, runs_dir: Path
) -> list[tuple[Rejudged, Audit]]:
    from art_cli.evaluation.rejudge import open_judge, rejudge, some_groups, untrained_groups
    from art_cli.llms.judges.audit import audit

    loaded, folder, is_run = inputs.open_target(target, runs_dir)
    run = folder if is_run or folder.trajectory_steps("train") else None
    if run:
        groups = await some_groups(run, loaded, num)
    else:
        groups = await untrained_groups(loaded, num, progress)
    results = []
    for name, cfg in _judge_configs(loaded, judges):
        asking = dataclasses.replace(cfg, votes=repeats)
        async with open_judge(asking, loaded, run, progress) as judge:
            found = await rejudge(name, judge, groups, progress)
        judged = [group.judged(verdict) for group, verdict in found.groups if verdict.votes]
        results.append((found, audit(judged)))
    return results


def _audit_row(found: Rejudged, audit: Audit) -> dict[str, Any]:
    from art_cli.llms.judges.audit import verdict

    return {
        "judge": found.judge,
        "groups": len(found.groups),
        "failures": len(found.errors),
        "usd_per_group": found.usd / found.num_groups,
        "seconds_per_group": found.seconds / found.num_groups,
        **dataclasses.asdict(audit),
        "verdict": verdict(audit),
    }


def _print_audits(results: list[tuple[Rejudged, Audit]]) -> None:
    from rich.table import Table

    from art_cli.llms.judges.audit import verdict
    from art_cli.terminal.screen import Screen

    found, audits = [r for r, _ in results], [a for _, a in results]
    table = Table(title=f"{found[0].num_groups} groups", title_justify="left")
    table.add_column("")
    for r in found:
        table.add_column(r.judge, justify="right", overflow="fold")
    rows: list[tuple[str, Callable[[Audit], GroupMean | None], str]] = [
        ("pairs ordered as the env does", lambda a: a.agreement, ".0%"),
        ("Kendall's tau with the env", lambda a: a.tau, "+.2f"),
        ("pairs ordered alike when asked again", lambda a: a.consistency, ".0%"),
        ("gain of being shown first", lambda a: a.first_gain, "+.3f"),
        ("Kendall's tau with length", lambda a: a.length_tau, "+.2f"),
        ("  the env's own", lambda a: a.env_length_tau, "+.2f"),
        ("ties", lambda a: a.tie_rate, ".0%"),
    ]
    for label, pick, form in rows:
        table.add_row(label, *(_cell(pick(a), form) for a in audits))
    table.add_row("groups failed", *(str(len(r.errors)) for r in found))
    table.add_row("dollars a group", *(f"{r.usd / r.num_groups:.4f}" for r in found))
    table.add_row("seconds a group", *(f"{r.seconds / r.num_groups:.2f}" for r in found))
    console = Screen()
    console.show(table)
    for r, audit in results:
        console.print(f"{r.judge}: {'; '.join(verdict(audit))}")
        if r.errors:
            console.print(f"  failed, the last with: {r.errors[-1]}")


def _cell(e: GroupMean | None, form: str) -> str:
    return "-" if e is None else f"{e.value:{form}} [{e.low:{form}}, {e.high:{form}}]"


async def _rescore(target: list[str], judges: list[str], step: int | None) -> list[dict[str, Any]]:
    from art_cli.evaluation.rejudge import open_judge, rejudge, stored_groups

    loaded, run = inputs.open_run(Path(target[0]), target[1:])
    steps = run.trajectory_steps("train") if step is None else [step]
    groups = await stored_groups(run, loaded, steps)
    rows = []
    for name, cfg in _judge_configs(loaded, judges):
        async with open_judge(cfg, loaded, run, progress) as judge:
            rows.append(_keep(run, await rejudge(name, judge, groups, progress)))
    return rows


def _keep(run: RunDir, found: Rejudged) -> dict[str, Any]:
    """Write the judge's answers, and return their summary."""
    from art_cli.keys import mask_keys_in
    from art_cli.llms.judges.audit import kendall_tau, mean_with_ci
    from art_cli.system.files import atomic_write, json_line

    lines = [
        {
            "step": group.step,
            "scenario_id": group.scenario_id,
            "scores": [s.score for s in verdict.scores],
            "explanations": [s.explanation for s in verdict.scores],
            "rewards": group.rewards,
            "env_rewards": group.env_rewards,
        }
        for group, verdict in found.groups
    ]
    file = run.judgements(found.judge)
    atomic_write(file, "".join(json_line(mask_keys_in(line)) for line in lines))
    taus = [kendall_tau(line["scores"], line["rewards"]) for line in lines]
    tau = mean_with_ci([t for t in taus if t is not None])
    return {
        "judge": found.judge,
        "file": str(file),
        "groups": len(found.groups),
        "failures": len(found.errors),
        "usd": found.usd,
        "tau": tau and tau.value,
    }
