"""`art envs`: the task environments that are registered."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def envs(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the registered environments. Any other is used by package.module:Class or file.py:Class.

    Example:  art envs
    """
    from art_cli.errors import UsageError
    from art_cli.registry import describe, env_class, env_names

    rows = []
    for name, target in env_names().items():
        try:
            line = describe(env_class(name))
        except UsageError as e:  # someone's broken plugin must not hide the others
            line = f"cannot be loaded: {e}"
        rows.append({"name": name, "class": target, "description": line})
    if as_json:
        return print(json.dumps(rows))
    width = max((len(r["name"]) for r in rows), default=0)
    for r in rows:
        print(f"{r['name']:<{width}}  {r['description']}")
    return None
