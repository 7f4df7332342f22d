"""The terminal that tables and the live panel are drawn on."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console

WIDE = 10_000  # columns of a file or a pipe: nothing there has to be cut or wrapped


class Screen(Console):
    """A console of rich, which is as wide as it takes where it is no terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)
        if not self.is_terminal and "width" not in options and "COLUMNS" not in os.environ:
            self.width = WIDE
