"""`art why`: explain why a run learned or did not."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli.inputs import AsJson, read_dotenv
from art_cli.terminal.text import masked, say, visible

if TYPE_CHECKING:
    from art_cli.runs.directory import RunDir
    from art_cli.why.finding import Finding

INDENT = 13  # columns of a label


def why(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: AsJson = False,
) -> None:
    """Say why the reward of a run rises, or does not: what is wrong, what shows it, what to change.

    A run that goes on can be asked too. Nothing in it is changed.

    Example:  art why runs/default/quickstart
    """
    from art_cli.runs.directory import RunDir
    from art_cli.why.diagnose import diagnose, verdict
    from art_cli.why.evidence import read_evidence

    read_dotenv(Path(".env"))  # the config may use environment variables
    evidence = read_evidence(RunDir.open(run))
    found = diagnose(evidence)
    if as_json:
        row = {"run": str(run), "verdict": verdict(evidence), "unread": evidence.unread}
        return say(json.dumps(row | {"findings": [asdict(f) for f in found]}))
    say(verdict(evidence))
    for line in evidence.unread:
        say(f"warning: {line}")
    if not found and evidence.series("train/reward"):
        say("Nothing is wrong, as far as the run's own numbers show.")
    for n, finding in enumerate(found, 1):
        show(n, finding, run)
    return None


def tell_shortly(run: RunDir) -> None:
    """Print one line for each serious finding of a run, and the command that explains them."""
    from art_cli.why.diagnose import diagnose
    from art_cli.why.evidence import read_evidence

    serious = [f for f in diagnose(read_evidence(run)) if f.weight == "serious"]
    for finding in serious[:3]:
        say(f"{finding.title}: {finding.evidence}")
    if serious:
        say(f"What to change:     art why {run.root}")


def show(n: int, finding: Finding, run: Path) -> None:
    """Print one finding of a run, wrapped to the terminal with an indent."""
    from rich.text import Text

    from art_cli.terminal.screen import Screen

    screen = Screen()
    style = "bold red" if finding.weight == "serious" else "bold yellow"
    screen.print()
    screen.print(Text.assemble(f"{n}. ", (finding.title, style), f"  ({finding.weight})"))
    lines = [
        ("shown by", finding.evidence),
        ("because", finding.reason),
        ("change", finding.change),
    ]
    for label, text in lines:
        if text:
            screen.hang(f"   {label}:", Text(visible(masked(text))), INDENT)
    if finding.example:  # on one line of any length, so that the command can be copied
        command = visible(masked(finding.example.replace("art show RUN", f"art show {run}")))
        screen.print(Text("   look at:".ljust(INDENT) + command), soft_wrap=True)
