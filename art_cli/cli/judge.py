"""`art judge`: can a judge be trusted, what would another one say, what did it say."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_cli.cli import inputs
from art_cli.cli.inputs import progress

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.config.schema import JudgeConfig
    from art_cli.judges.audit import Audit, Estimate, JudgedGroup
    from art_cli.judges.base import Transcript, Verdict
    from art_cli.judges.ruler import Ruler
    from art_cli.rundir import RunDir

app = typer.Typer(
    help="Audit a judge on stored trajectories, re-judge them, show what it said.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JUDGES_HELP = "A model (openai/gpt-4.1), or a YAML file with a section judge. Default: the config's"
Judges = Annotated[list[str] | None, typer.Option("--judge", help=f"{JUDGES_HELP}.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Target = Annotated[
    list[str], typer.Argument(help="A run directory or a config, and key=value overrides.")
]
SHOWN = 600  # characters of a message in `art judge show`


@app.command("audit")
def audit_command(
    target: Target,
    judge: Judges = None,
    groups: Annotated[int, typer.Option(min=1, help="How many groups to judge.")] = 32,
    repeats: Annotated[int, typer.Option(min=1, help="How often each, in other orders.")] = 4,
    runs_dir: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Say how far a judge can be trusted, before GPU hours are spent on what it says.

    On the stored trajectories of a run; for a config without a run, on those of its untrained
    policy. Several --judge are compared side by side.

    Example:  art judge audit runs/default/quickstart --judge openai/gpt-4.1 --judge openai/o3
    """
    results = asyncio.run(_audit(target, judge or [], groups, repeats, runs_dir))
    if as_json:
        return print(json.dumps([_audit_row(r) for r in results]))
    return _print_audits(results)


@app.command("rescore")
def rescore_command(
    target: Annotated[list[str], typer.Argument(help="A run directory, and key=value overrides.")],
    judge: Judges = None,
    step: Annotated[int | None, typer.Option(help="Of this step only.")] = None,
    as_json: Json = False,
) -> None:
    """Judge the stored trajectories of a run again, without rolling anything out.

    One line a group goes to RUN/judgements/; the run itself stays as it is.

    Example:  art judge rescore runs/default/quickstart --judge openai/gpt-4.1 --step 40
    """
    rows = asyncio.run(_rescore(target, judge or [], step))
    if as_json:
        return print(json.dumps(rows))
    for row in rows:
        tau = "-" if row["tau"] is None else f"{row['tau']:+.2f}"
        print(
            f"{row['judge']}: {row['groups']} groups judged, {row['failures']} failed, "
            f"${row['usd']:.4f}; Kendall's tau with the rewards that were trained on: {tau}\n"
            f"in {row['file']}"
        )
    return None


@app.command("show")
def show_command(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[int, typer.Argument(help="Of which step.")],
    group: Annotated[
        int | None, typer.Option(min=0, help="Which group; default: the one with most to learn.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one group side by side: what each trajectory did, its scores, and what the judge said.

    Example:  art judge show runs/default/quickstart-ruler 40
    """
    from art_cli.errors import UsageError
    from art_cli.rundir import RunDir

    rows = RunDir.open(run).read_trajectories(step, "train")
    by_group = _grouped(rows)
    if group is None:
        group = max(range(len(by_group)), key=lambda n: _width(by_group[n]))
    if group >= len(by_group):
        raise UsageError(f"step {step} has the groups 0 to {len(by_group) - 1}, not {group}")
    chosen = sorted(by_group[group], key=lambda row: -(row["reward"] or 0.0))
    if as_json:
        return print(json.dumps(chosen))
    return _print_group(chosen, step, group, len(by_group))


# ------------------------------------------------------------------------------- what is judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """One group as it was stored."""

    step: int
    scenario_id: str
    transcripts: list[Transcript]
    env_rewards: list[float | None]
    rewards: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What became of judging some groups."""

    judge: str
    verdicts: list[Verdict | None]  # None: the judge failed
    errors: list[str]
    usd: float
    seconds: float


def _stored(run: RunDir, tools: list[Any], steps: list[int]) -> list[_Stored]:
    groups = [g for step in steps for g in _grouped(run.read_trajectories(step, "train"))]
    found = [_as_stored(rows, tools) for rows in groups]
    return [g for g in found if len(g.transcripts) > 1]


def _grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    return [groups[n] for n in sorted(groups)]


def _as_stored(rows: list[dict[str, Any]], tools: list[Any]) -> _Stored:
    from art_cli.score import stored_transcript

    played = [r for r in rows if r["stop_reason"] not in ("error", "timeout")]
    return _Stored(
        step=rows[0]["step"],
        scenario_id=rows[0]["scenario_id"],
        transcripts=[stored_transcript(r, tools) for r in played],
        env_rewards=[_env_reward(r) for r in played],
        rewards=[r["reward"] for r in played],
    )


def _env_reward(row: dict[str, Any]) -> float | None:
    """The env's own: a metric where a judge was asked, else the reward itself."""
    judged = "ruler_score" in row["metrics"]
    return row["metrics"].get("env_reward", None if judged else row["reward"])


def _width(rows: list[dict[str, Any]]) -> float:
    rewards = [r["reward"] for r in rows if r["reward"] is not None]
    return max(rewards) - min(rewards) if rewards else 0.0


# ------------------------------------------------------------------------------------ who judges


def _judge_configs(loaded: LoadedExperiment, judges: list[str]) -> list[tuple[str, JudgeConfig]]:
    """Name and section of each --judge, or of the config."""
    from art_cli.config.schema import JudgeConfig
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
    """Its section judge, whatever else is in it."""
    from art_cli.config.load import load_experiment
    from art_cli.errors import UsageError

    needed = ["env.use=any", "model.base=any", "train.steps=0"]  # what a config must have
    cfg = load_experiment([file], needed).experiment.judge
    if cfg is None:
        raise UsageError(f"{file} has no section judge")
    return cfg


@contextlib.asynccontextmanager
async def _opened(cfg: JudgeConfig, loaded: LoadedExperiment, run: RunDir) -> AsyncIterator[Ruler]:
    """The judge, ready; with `model: reference`, the run's own base."""
    from art_cli.backends.local import LocalBackend
    from art_cli.judges.make import make_judge
    from art_cli.model import TrainableModel

    async with contextlib.AsyncExitStack() as stack:
        if cfg.model == "reference":
            experiment = dataclasses.replace(loaded.experiment, judge=cfg)
            model = TrainableModel.of(experiment, loaded.env_settings, loaded.to_yaml())
            root = run.root.parent.parent
            backend = await stack.enter_async_context(LocalBackend(root, report=progress))
            await model.open(backend)
            judge = await backend.reference_judge(model, model.parts)
        else:
            progress(f"asking {cfg.model}")
            judge = await make_judge(cfg, loaded.experiment.seed)
            stack.push_async_callback(judge.close)
        yield judge


async def _judged(name: str, judge: Ruler, groups: list[_Stored]) -> _Result:
    from art_cli.errors import JudgeError

    done, errors = 0, []

    async def one(group: _Stored) -> Verdict | None:
        nonlocal done
        try:
            return await judge.judge(group.transcripts)
        except JudgeError as e:
            errors.append(str(e))
            return None
        finally:
            done += 1
            progress(f"{name}: judging", done, len(groups))

    began = time.monotonic()
    verdicts = await asyncio.gather(*(one(group) for group in groups))
    seconds = time.monotonic() - began
    return _Result(
        judge=name, verdicts=list(verdicts), errors=errors, usd=judge.spent, seconds=seconds
    )


# ----------------------------------------------------------------------------------------- audit


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audited:
    result: _Result
    audit: Audit
    num_groups: int


async def _audit(
    target: list[str], judges: list[str], num: int, repeats: int, runs_dir: Path
) -> list[_Audited]:
    from art_cli.judges.audit import audit

    loaded, run = _open_target(target, runs_dir)
    with contextlib.ExitStack() as stack:
        if run is None:
            run = await _untrained_rollouts(loaded, num, stack)
        groups = _spread_over(run, loaded, num)
        results = []
        for name, cfg in _judge_configs(loaded, judges):
            asking = dataclasses.replace(cfg, votes=repeats)
            async with _opened(asking, loaded, run) as judge:
                result = await _judged(name, judge, groups)
            judged = [
                _as_judged(group, verdict)
                for group, verdict in zip(groups, result.verdicts, strict=True)
                if verdict is not None and verdict.votes
            ]
            audited = _Audited(result=result, audit=audit(judged), num_groups=len(judged))
            results.append(audited)
    return results


def _open_target(target: list[str], runs_dir: Path) -> tuple[LoadedExperiment, RunDir | None]:
    """The experiment, and its run where it has stored any trajectories."""
    from art_cli.rundir import RunDir

    run = RunDir(Path(target[0]).resolve())
    if run.config.is_file():
        return inputs.load([str(run.config), *target[1:]]), run
    loaded = inputs.load(target)
    run = RunDir(runs_dir / loaded.experiment.project / loaded.experiment.name)
    return loaded, run if run.trajectory_steps("train") else None


def _spread_over(run: RunDir, loaded: LoadedExperiment, num: int) -> list[_Stored]:
    """At most `num` groups, evenly from the first step to the last."""
    from art_cli.errors import UsageError
    from art_cli.registry import env_class
    from art_cli.tools import schemas_of

    steps = run.trajectory_steps("train")
    if not steps:
        raise UsageError(f"{run.root} has no train trajectories yet; audit its config instead")
    some = sorted({steps[i * (len(steps) - 1) // max(1, num - 1)] for i in range(num)})
    groups = _stored(run, schemas_of(env_class(loaded.experiment.env.use)), some)
    if not groups:
        raise UsageError(f"{run.root} has no group of two finished trajectories")
    return [groups[i * len(groups) // num] for i in range(num)] if len(groups) > num else groups


async def _untrained_rollouts(
    loaded: LoadedExperiment, num: int, stack: contextlib.ExitStack
) -> RunDir:
    """Groups of the policy that the config starts from, in a folder that is thrown away."""
    import tempfile

    from art_cli.backends.local import LocalBackend
    from art_cli.gather import gather_trajectory_groups, scenarios_of
    from art_cli.model import TrainableModel

    folder = stack.enter_context(tempfile.TemporaryDirectory())
    experiment = dataclasses.replace(loaded.experiment, judge=None, reward=None)
    model = TrainableModel.of(experiment, loaded.env_settings, loaded.to_yaml())
    async with LocalBackend(folder, report=progress) as backend:
        await model.register(backend)
        groups = await gather_trajectory_groups(
            model,
            scenarios_of(model, "train")[:num],
            group_size=experiment.train.group_size,
            report=progress,
        )
        run = model.parts.run
        run.write_trajectories(0, "train", groups)
    return run


def _as_judged(group: _Stored, verdict: Verdict) -> JudgedGroup:
    from art_cli.judges.audit import JudgedGroup

    return JudgedGroup(
        votes=verdict.votes,
        orders=verdict.orders,
        env_rewards=group.env_rewards,
        lengths=[len(json.dumps(t.messages)) for t in group.transcripts],
    )


def _audit_row(audited: _Audited) -> dict[str, Any]:
    from art_cli.judges.audit import verdict

    result, num = audited.result, len(audited.result.verdicts)
    return {
        "judge": result.judge,
        "groups": audited.num_groups,
        "failures": len(result.errors),
        "usd_per_group": result.usd / num,
        "seconds_per_group": result.seconds / num,
        **dataclasses.asdict(audited.audit),
        "verdict": verdict(audited.audit),
    }


def _print_audits(results: list[_Audited]) -> None:
    from rich.console import Console
    from rich.table import Table

    from art_cli.judges.audit import verdict

    table = Table(title=f"{results[0].num_groups} groups", title_justify="left")
    table.add_column("")
    for r in results:
        table.add_column(r.result.judge, justify="right", overflow="fold")
    rows: list[tuple[str, Callable[[Audit], Estimate | None], str]] = [
        ("pairs ordered as the env does", lambda a: a.agreement, ".0%"),
        ("Kendall's tau with the env", lambda a: a.tau, "+.2f"),
        ("pairs ordered alike when asked again", lambda a: a.consistency, ".0%"),
        ("gain of being shown first", lambda a: a.first_gain, "+.3f"),
        ("Kendall's tau with length", lambda a: a.length_tau, "+.2f"),
        ("  the env's own", lambda a: a.env_length_tau, "+.2f"),
        ("ties", lambda a: a.tie_rate, ".0%"),
    ]
    for label, pick, form in rows:
        table.add_row(label, *(_cell(pick(r.audit), form) for r in results))
    num = len(results[0].result.verdicts)
    table.add_row("groups failed", *(str(len(r.result.errors)) for r in results))
    table.add_row("dollars a group", *(f"{r.result.usd / num:.4f}" for r in results))
    table.add_row("seconds a group", *(f"{r.result.seconds / num:.2f}" for r in results))
    console = Console(highlight=False)
    console.print(table)
    for r in results:
        console.print(f"{r.result.judge}: {'; '.join(verdict(r.audit))}", markup=False)
        if r.result.errors:
            console.print(f"  failed, the last with: {r.result.errors[-1]}", markup=False)


def _cell(e: Estimate | None, form: str) -> str:
    return "-" if e is None else f"{e.value:{form}} [{e.low:{form}}, {e.high:{form}}]"


# --------------------------------------------------------------------------------------- rescore


async def _rescore(target: list[str], judges: list[str], step: int | None) -> list[dict[str, Any]]:
    from art_cli.judges.audit import kendall_tau, mean_with_ci
    from art_cli.registry import env_class
    from art_cli.rundir import RunDir, atomic_write, json_line
    from art_cli.tools import schemas_of

    run = RunDir.open(Path(target[0]).resolve())
    loaded = inputs.load([str(run.config), *target[1:]])
    steps = run.trajectory_steps("train") if step is None else [step]
    groups = _stored(run, schemas_of(env_class(loaded.experiment.env.use)), steps)
    rows = []
    for name, cfg in _judge_configs(loaded, judges):
        async with _opened(cfg, loaded, run) as judge:
            result = await _judged(name, judge, groups)
        judged = [(g, v) for g, v in zip(groups, result.verdicts, strict=True) if v is not None]
        lines = [
            {
                "step": group.step,
                "scenario_id": group.scenario_id,
                "scores": [s.score for s in verdict.scores],
                "explanations": [s.explanation for s in verdict.scores],
                "rewards": group.rewards,
                "env_rewards": group.env_rewards,
            }
            for group, verdict in judged
        ]
        file = run.judgements(name)
        atomic_write(file, "".join(map(json_line, lines)))
        taus = [kendall_tau([s.score for s in v.scores], g.rewards) for g, v in judged]
        tau = mean_with_ci([t for t in taus if t is not None])
        rows.append(
            {
                "judge": name,
                "file": str(file),
                "groups": len(judged),
                "failures": len(result.errors),
                "usd": result.usd,
                "tau": tau and tau.value,
            }
        )
    return rows


# ------------------------------------------------------------------------------------------ show


def _print_group(rows: list[dict[str, Any]], step: int, group: int, num: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from art_cli.judges.base import Transcript
    from art_cli.judges.prompt import split_opening

    opening, rests = split_opening([Transcript(messages=r["messages"]) for r in rows])
    console = Console(highlight=False)
    title = f"step {step}, group {group} of {num}: scenario {rows[0]['scenario_id']}"
    console.print(title, style="bold", markup=False)
    for message in opening:
        console.print(_said(message))
    table = Table(show_lines=True)
    for name in ("reward", "env", "ruler"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what it did", ratio=3, overflow="fold")
    table.add_column("what the judge said", ratio=2, overflow="fold")
    for row, rest in zip(rows, rests, strict=True):
        did = Text("\n").join(_said(m) for m in rest)
        said = "\n".join(row["logs"]).removeprefix("RULER: ") or row["error"] or ""
        numbers = (row["reward"], _env_reward(row), row["metrics"].get("ruler_score"))
        cells = ["-" if n is None else f"{n:.2f}" for n in numbers]
        table.add_row(*cells, did, Text(said.partition("\n")[0]))
    console.print(table)


def _said(message: dict[str, Any]) -> Any:
    from rich.text import Text

    content = str(message.get("content") or "")
    if len(content) > SHOWN:
        content = f"{content[:SHOWN]} [{len(content) - SHOWN} more characters]"
    return Text.assemble((f"{message['role']}  ", "dim"), content)
