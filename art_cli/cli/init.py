"""`art init`: a folder to start an own task from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from art_cli.terminal.text import say

COMMON = ("README.md",)
OF_A_KIND = ("config.yaml", "env.py", "test_env.py")
NEXT = """\
Made {folder}/ with {names}.

    cd {folder}
    art envs check config.yaml  is it a task to train on
    art run config.yaml         a minute or two on a CPU; the reward rises

README.md says what to change to make it your task."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    kind: Annotated[
        Literal["tools", "game"],
        typer.Option(help="An agent that calls tools, or a game of plain answers."),
    ] = "tools",
) -> None:
    """Make a folder with an env, a config and tests that run as they stand, to change into yours.

    Example:  art init my-task --kind tools
    """
    from art_cli.errors import UsageError

    if folder.is_file():
        raise UsageError(f"{folder} is a file; give a new or empty folder")
    if folder.exists() and (there := sorted(p.name for p in folder.iterdir())):
        raise UsageError(
            f"{folder} is not empty (it has {', '.join(there[:5])}{', ...' if there[5:] else ''}), "
            "and nothing is ever overwritten; give a new or empty folder"
        )
    template = files("art_cli.cli") / "template"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in (*COMMON, *(f"{kind}/{name}" for name in OF_A_KIND)):
            with open(folder / Path(source).name, "x", encoding="utf-8") as file:
                file.write((template / source).read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"cannot make {folder}: {e.strerror}") from e
    say(NEXT.format(folder=folder, names=", ".join(COMMON + OF_A_KIND)))
