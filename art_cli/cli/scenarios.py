"""`art scenarios`: a file of tasks from the tools of an MCP server or an HTTP API alone."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.printed import say

if TYPE_CHECKING:
    from art_cli.scenarios.source import ToolsSource


def scenarios(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Of env.args: tools=[a,b] call_timeout=5"),
    ] = None,
    mcp: Annotated[
        str | None, typer.Option(help="An MCP server: a command that starts it, or a URL.")
    ] = None,
    openapi: Annotated[
        str | None, typer.Option(help="An HTTP API: its OpenAPI document, a file or a URL.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("tasks.jsonl"),
    exact: Annotated[
        bool, typer.Option("--exact", help="Without a model: results of calls that repeat.")
    ] = False,
    demonstrations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the train tasks as conversations to warm up on."),
    ] = None,
    num: Annotated[int, typer.Option(min=4, help="How many tasks.")] = 100,
    seed: Annotated[int, typer.Option(help="Another one gives other tasks.")] = 0,
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A value for an argument of this name."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Write tasks for the tools of an MCP server or an HTTP API: questions, and answers that hold.

    Example:  art scenarios --mcp "npx -y some-server" --exact --out tasks.jsonl
    """
    from art_cli.errors import UsageError
    from art_cli.scenarios.exact import exact_calls, left_out
    from art_cli.scenarios.rows import SYSTEM, tasks_of, write_rows
    from art_cli.scenarios.values import KnownValues

    if not exact:
        raise UsageError("say how the tasks are made: --exact, without a model")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already; --force replaces it")
    source = _source(mcp, openapi, settings or [])
    values = KnownValues(_given(value or []))

    tried = asyncio.run(exact_calls(source, num, seed, values, inputs.progress))
    inputs.progress("")
    rows = tasks_of(tried.kept, tried.tools, num, seed)
    if not rows:
        raise UsageError("no result is short enough to be an answer")
    counts = write_rows(out, rows, demonstrations)
    kinds = sorted({row.kind for row in rows})
    section = source.section(out, SYSTEM)
    if demonstrations:
        section += f"\nwarmup: {{demonstrations: {demonstrations}}}"
    if as_json:
        summary = {"file": str(out), "tasks": len(rows), "splits": counts, "tools": kinds}
        return say(json.dumps(summary | {"left_out": left_out(tried), "env": section}))
    split = ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
    say(f"{out}: {len(rows)} tasks ({split}) of {len(kinds)} tools: {', '.join(kinds)}")
    for line in left_out(tried):
        say(f"left out: {line}")
    return say(f"\n{section}")


def _source(mcp: str | None, openapi: str | None, settings: list[str]) -> ToolsSource:
    """Return what is named. Raises UsageError."""
    from art_cli.errors import UsageError
    from art_cli.scenarios.source import ToolsSource

    inputs.read_dotenv(Path(".env"))
    if (mcp is None) == (openapi is None):
        raise UsageError('give one of --mcp "COMMAND" (or a URL) and --openapi SPEC')
    if openapi is not None:
        return ToolsSource("openapi", {"spec": openapi}, settings)
    assert mcp is not None
    is_url = mcp.startswith(("http://", "https://"))
    if is_url and not any(text.startswith("tools=") for text in settings):
        raise UsageError(
            f"{mcp} is a server that others may use, and its tools will be called with many "
            "arguments: name those that only read, as in tools=[list_notes,get_note]"
        )
    return ToolsSource("mcp", {"url" if is_url else "command": mcp}, settings)


def _given(values: list[str]) -> dict[str, list[str]]:
    from art_cli.errors import UsageError

    out: dict[str, list[str]] = defaultdict(list)
    for text in values:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--value {text!r}: expected NAME=VALUE")
        out[name].append(value)
    return out
