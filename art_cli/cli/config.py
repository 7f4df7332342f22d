"""`art config`: the meaning of a config's keys, as text and as a schema for editors."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from art_cli.cli import inputs
from art_cli.terminal.text import say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
WIDTH = 78
LABEL = 10  # columns
OPTIONAL = "Config files and key=value overrides: what the key is there, and who says so."


@app.command()
def explain(
    key: Annotated[str, typer.Argument(help="A key or a section, such as train.clip_low.")],
    config: Annotated[list[str] | None, typer.Argument(help=OPTIONAL)] = None,
    as_json: inputs.AsJson = False,
) -> None:
    """Say what a key of a config means, what it takes, and what it is in a config of yours.

    Example:  art config explain train.clip_low configs/quickstart.yaml
    """
    from art_cli.config.reference import about, key_at, keys_of

    found = key_at(key)
    lines = {
        "meaning": _plain(found.meaning or (" ".join(map(about, found.sections)))),
        "takes": _plain(found.takes),
        "default": _plain(found.default),
        "needs": "; ".join(_plain(each) for each in found.needs),
    }
    inside = [each for section in found.sections for each in keys_of(section)]
    if config:
        lines |= _in_config(key, config, is_section=bool(inside))
    if as_json:
        keys = {each.name: each.in_words for each in inside}
        say(json.dumps({"key": key} | lines | ({"keys": keys} if keys else {})))
        return
    say(key)
    for label, text in lines.items():
        if text:
            _row(label, text)
    if inside:
        say("  keys")
    for each in inside:
        _row(f"  {each.name}", _plain(each.in_words) or _plain(each.takes), 26)


@app.command()
def schema(
    env: Annotated[str | None, typer.Option(help="Its settings are checked too.")] = None,
    python: inputs.Python = None,
    out: Annotated[Path | None, typer.Option(help="A file to write, instead of stdout.")] = None,
) -> None:
    """Print the JSON Schema of a config, with which an editor completes and checks it.

    Example:  art config schema --out .vscode/art.schema.json
    """
    from art_cli.config.reference import json_schema
    from art_cli.errors import UsageError
    from art_cli.rollout.env_class import env_in
    from art_cli.system.files import atomic_write

    if python and not env:
        raise UsageError("--python is where an env runs; name it: --env USE")
    settings = env_in(env, python).Config if env else None
    text = json.dumps(json_schema(env, settings), indent=2)
    if out is None:
        say(text)
        return
    atomic_write(out, text + "\n")
    say(f"wrote {out}; an editor that reads YAML takes it by a first line of a config:")
    say(f"# yaml-language-server: $schema={out}")


def _in_config(key: str, config: list[str], *, is_section: bool) -> dict[str, str]:
    loaded = inputs.load(config)
    value = loaded.document
    for name in key.split("."):
        if not isinstance(value, dict):  # the section above is null
            return {"here": "has no effect: the section above it is null"}
        value = value[name]
    if is_section and value is not None:
        return {}
    return {"here": f"{json.dumps(value)}  ({loaded.origins.get(key, 'default')})"}


def _row(label: str, text: str, width: int = LABEL) -> None:
    indent = " " * (width + 2)
    head = f"  {label:<{width}}" if len(label) < width else f"  {label}\n{indent}"
    body = textwrap.fill(
        " ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent
    )
    say(head + body[len(indent) :])


def _plain(markdown: str) -> str:
    """Return Markdown as plain text for a terminal."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "").replace("**", "")
