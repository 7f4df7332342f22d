"""The rich console for all tables and progress."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from art_cli.terminal.text import masked, visible

WIDE = 10_000  # columns of a file or a pipe, so that nothing is cut or wrapped


class Screen(Console):
    """A rich console that shows control sequences in given texts instead of obeying them.

    Markup, emoji codes and escape sequences in texts are shown literally. The console's own styles
    and cursor movements work. If it is not a terminal, its width is practically unlimited.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        if not self.is_terminal and "width" not in options and "COLUMNS" not in os.environ:
            self.width = WIDE

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string to a Text with visible characters only, before its width is measured."""
        return super().render_str(visible(masked(text)), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render; also make characters visible in a Text that the caller constructed."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(masked(segment.text))
            if self.encoding != "utf-8":  # unsupported characters become "?"
                text = text.encode(self.encoding, "replace").decode(self.encoding)
            yield segment if text == segment.text else segment._replace(text=text)

    def hang(self, label: str, text: Text, indent: int, style: str = "dim") -> None:
        """Print a text beside its label, with aligned lines. Nothing is cut."""
        lines = text.wrap(self, max(self.width - indent, 10), overflow="fold")
        for num, line in enumerate(lines or [Text()]):
            line.rstrip()
            head = f"{'' if num else label:<{indent - 1}} "
            self.print(Text.assemble((head, style), line), no_wrap=True, crop=False)

    def wrap(self, line: str, style: str = "") -> None:
        """Print a line. The part that does not fit goes below, indented. Nothing is cut."""
        lead = len(line) - len(line.lstrip())
        words = Text(visible(masked(line.lstrip())), style)
        parts = words.wrap(self, max(self.width - lead - 2, 10), overflow="fold")
        for num, part in enumerate(parts or [Text()]):
            part.rstrip()
            margin = " " * (lead + 2 * bool(num))
            self.print(Text.assemble(margin, part), no_wrap=True, crop=False)

    def show(self, table: Table) -> None:
        """Print a table, or one cell per line if it is wider than the terminal."""
        whole = Measurement.get(self, self.options.update(width=WIDE), table).maximum
        if whole <= self.width:
            return self.print(table)
        if table.title:
            self.print(table.title)
        names = [str(column.header).replace("\n", " ") for column in table.columns[1:]]
        indent = max(map(len, names))
        for title, *cells in zip(*(column.cells for column in table.columns), strict=True):
            self.print(title)
            for name, cell in zip(names, cells, strict=True):
                if text := str(cell).strip():
                    self.print(f"  {name:<{indent}}  {text}")
        return None
