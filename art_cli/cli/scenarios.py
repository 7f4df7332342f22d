"""`art scenarios`: write tasks for the tools of an MCP server or an HTTP API."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.errors import ArtError
    from art_cli.scenarios.rows import TaskRow
    from art_cli.scenarios.source import ToolsSource
    from art_cli.scenarios.values import KnownValues
    from art_cli.types import Split


Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Of env.args: tools=[a,b] call_timeout=5"),
]
Mcp = Annotated[str | None, typer.Option(help="An MCP server: a command that starts it, or a URL.")]
OpenApi = Annotated[
    str | None, typer.Option(help="An HTTP API: its OpenAPI document, a file or a URL.")
]
Out = Annotated[Path, typer.Option(help="The file to write.")]
Exact = Annotated[
    bool, typer.Option("--exact", help="Without a model: results of calls that repeat.")
]
Model = Annotated[
    str | None,
    typer.Option(help="A model that writes them: openai/gpt-4.1, or as --candidate of eval."),
]
MaxUsd = Annotated[
    float | None, typer.Option(min=0.0, help="What the model may cost, over all attempts.")
]
Describe = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A text for the model: whom it is for, what they want."),
]
Demonstrations = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the train tasks as conversations to warm up on."),
]
Num = Annotated[int, typer.Option(min=4, help="How many tasks.")]
Seed = Annotated[int, typer.Option(help="Another one gives other tasks.")]
Values = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="NAME=VALUE", help="A value for an argument of this name."),
]
Tools = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...", help="Tools to call and train on. Default: those that only read."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file.")]


def scenarios(
    settings: Settings = None,
    mcp: Mcp = None,
    openapi: OpenApi = None,
    out: Out = Path("tasks.jsonl"),
    exact: Exact = False,
    model: Model = None,
    max_usd: MaxUsd = None,
    describe: Describe = None,
    demonstrations: Demonstrations = None,
    num: Num = 100,
    seed: Seed = 0,
    value: Values = None,
    tools: Tools = None,
    allow_writes: inputs.AllowWrites = False,
    force: Force = False,
    python: inputs.Python = None,
    as_json: inputs.AsJson = False,
) -> None:
    """Write tasks for the tools of an MCP server or an HTTP API: questions, and answers that hold.

    Example:  art scenarios --mcp "npx -y some-server" --exact --out tasks.jsonl
    """
    from art_cli.errors import UsageError
    from art_cli.scenarios.rows import write_rows
    from art_cli.scenarios.values import KnownValues

    if exact == (model is not None):
        raise UsageError("say how the tasks are made: --exact, without a model, or --model NAME")
    if exact and (describe or max_usd is not None):
        raise UsageError("--describe and --max-usd are for --model")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already; --force replaces it")
    named = [name.strip() for name in (tools or "").split(",") if name.strip()]
    if allow_writes and not named:
        raise UsageError("--allow-writes needs --tools NAME,...: those that are to be called")
    source = _source(mcp, openapi, settings or [], python, named, allow_writes)
    values = KnownValues(_given(value or []))
    made = (
        _exact(source, num, seed, values)
        if model is None
        else asyncio.run(_written(source, model, max_usd, describe, out, num, seed, values))
    )
    inputs.progress("")
    counts = write_rows(out, made.rows, demonstrations)
    sections = [source.section(out, made.grade), *made.sections]
    if demonstrations:
        sections.append(f"sft: {{demonstrations: {json.dumps(str(demonstrations))}}}")
    _tell(out, made, counts, sections, as_json)
    if made.stopped:
        raise made.stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Generated tasks, the reasons for rejected ones, and the config to train on them."""

    rows: list[TaskRow]
    left_out: list[str]
    grade: str
    sections: list[str] = field(default_factory=list)  # sections of the config besides `env`
    usd: float | None = None  # cost of the model, over all attempts
    stopped: ArtError | None = None


def _exact(source: ToolsSource, num: int, seed: int, values: KnownValues) -> Made:
    from art_cli.errors import UsageError
    from art_cli.scenarios.exact import exact_calls, left_out
    from art_cli.scenarios.rows import LONGEST, tasks_of

    tried = asyncio.run(exact_calls(source, num, seed, values, inputs.progress))
    rows, guessed = tasks_of(tried.kept, tried.tools, num, seed, tried.seen)
    tried.guessed += guessed
    if not rows:
        why = left_out(tried) or [f"all have more than {LONGEST} characters"]
        raise UsageError(f"no result is an answer: {'; '.join(why)}")
    return Made(rows=rows, left_out=left_out(tried), grade="exact")


async def _written(
    source: ToolsSource,
    model: str,
    max_usd: float | None,
    describe: Path | None,
    out: Path,
    num: int,
    seed: int,
    values: KnownValues,
) -> Made:
    from art_cli.errors import UsageError
    from art_cli.evaluation.candidates import parse_llm
    from art_cli.keys import mask_keys
    from art_cli.llms.base import Budget
    from art_cli.llms.judges.cache import AnswerCache
    from art_cli.llms.judges.ruler import Ruler
    from art_cli.llms.services import open_remote
    from art_cli.scenarios.exact import not_called
    from art_cli.scenarios.writer import TaskWriter, known_of
    from art_cli.scenarios.written import DraftTrial, examples_of, written_tasks
    from art_cli.system.files import atomic_write, cache_folder, read_text

    cfg = parse_llm(model, "--model")
    try:
        description = read_text(describe) if describe else ""
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"--describe: cannot read {describe}: {e}") from None
    tried, examples = await examples_of(source, seed, values, inputs.progress)
    llm = await open_remote(cfg, Budget(max_usd, out.with_suffix(".costs.jsonl"), "--max-usd"))
    try:
        cache = AnswerCache(cache_folder("scenarios"))
        known = known_of(list(tried.tools.values()), examples, description)
        writer = TaskWriter(llm, cache, known)
        rubric = await writer.rubric()
        trial = DraftTrial(source, writer, Ruler(llm, rubric=rubric, cache=cache, seed=seed))
        found = await written_tasks(trial, list(tried.tools), num, seed, inputs.progress)
    finally:
        await llm.close()
    left_out = not_called(tried) + [f"{n} tasks: {why}" for why, n in found.dropped.items()]
    if not found.rows:
        raise UsageError(f"no task came of it: {'; '.join(left_out) or 'the model wrote none'}")
    file = out.with_suffix(".rubric.txt")
    atomic_write(file, mask_keys(rubric.rstrip()) + "\n")
    base = f", api_base: {json.dumps(cfg.api_base)}" if cfg.api_base else ""
    judge = f"judge: {{model: {json.dumps(cfg.model)}{base}, rubric_file: {json.dumps(str(file))}}}"
    return Made(
        rows=found.rows,
        left_out=left_out,
        grade="judge",
        sections=[judge],
        usd=llm.spent,
        stopped=found.stopped,
    )


def _tell(
    out: Path, made: Made, counts: Counter[Split], sections: list[str], as_json: bool
) -> None:
    kinds = sorted({row.kind for row in made.rows})
    config = "\n".join(sections)
    if as_json:
        summary = {"file": str(out), "tasks": len(made.rows), "splits": counts, "tools": kinds}
        return say(
            json.dumps(summary | {"left_out": made.left_out, "usd": made.usd, "config": config})
        )
    split = ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
    say(f"{out}: {len(made.rows)} tasks ({split}) of {len(kinds)} tools: {', '.join(kinds)}")
    for line in made.left_out:
        say(f"left out: {line}")
    if made.usd is not None:
        say(f"${made.usd:.4f} spent")
    return say(f"\n{config}")


def _source(
    mcp: str | None,
    openapi: str | None,
    settings: list[str],
    python: str | None,
    tools: list[str],
    allow_writes: bool,
) -> ToolsSource:
    """Return the source of tools that the options name. Raise UsageError."""
    from art_cli.errors import UsageError
    from art_cli.scenarios.source import TOOLS_SETTING, ToolsSource

    inputs.read_dotenv(Path(".env"))
    if (mcp is None) == (openapi is None):
        raise UsageError('give one of --mcp "COMMAND" (or a URL) and --openapi SPEC')
    use = "mcp" if openapi is None else "openapi"
    if tools and (given := [s for s in settings if s.startswith(f"{TOOLS_SETTING[use]}=")]):
        raise UsageError(f"--tools and {given[0]} say the same; leave one of them out")
    if mcp is None:
        where = {"spec": openapi}
    else:
        where = {"url" if mcp.startswith(("http://", "https://")) else "command": mcp}
    return ToolsSource(use, where, settings, python, tools, allow_writes)


def _given(values: list[str]) -> dict[str, list[str]]:
    from art_cli.errors import UsageError

    out: dict[str, list[str]] = defaultdict(list)
    for text in values:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--value {text!r}: expected NAME=VALUE")
        out[name].append(value)
    return out
