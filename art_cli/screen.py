"""The terminal that tables and the live panel are drawn on."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDE = 10_000  # columns of a file or a pipe: nothing there has to be cut or wrapped


class Screen(Console):
    """A console of rich, which is as wide as it takes where it is no terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)
        if not self.is_terminal and "width" not in options and "COLUMNS" not in os.environ:
            self.width = WIDE

    def show(self, table: Table) -> None:
        """Print a table of texts; with one cell a line where it is wider than the terminal."""
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
