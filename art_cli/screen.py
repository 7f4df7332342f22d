"""The terminal that tables and the live panel are drawn on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from art_cli.printed import masked, visible


class Screen(Console):
    """A console of rich that obeys nothing in the texts which it is given.

    Markup, emoji codes and escape sequences in them are text; its own styles and movements stay.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a Text of the string, in which all can be seen, before its width is measured."""
        return super().render_str(visible(masked(text)), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render; what comes as a Text of someone's own is made visible here."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(masked(segment.text))
            yield segment if text == segment.text else segment._replace(text=text)
