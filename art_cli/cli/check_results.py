"""Printing of check results: the state in color, the text wrapped in a column beside its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from art_cli.terminal.text import masked, visible

if TYPE_CHECKING:
    from art_cli.preflight.check_result import CheckResult
    from art_cli.terminal.screen import Screen

STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}
STATUS = 9  # columns


def tell_result(screen: Screen, result: CheckResult, indent: int) -> None:
    """Print a result; its text begins at column `indent`."""
    label = f"{result.status:<{STATUS}}{result.check}"
    # On one line, otherwise the text of an env's error could imitate other results.
    what = visible(masked(result.what), lines=False)
    screen.hang(label, Text(what), indent, STYLES[result.status])
    if more := " · ".join(filter(None, (result.where, result.todo))):
        screen.hang("", Text(visible(masked(more)), "dim"), indent)
