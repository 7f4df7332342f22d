"""`art view`: show runs on a live page, or write the page to a file."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated

import typer

from art_cli.cli.inputs import progress
from art_cli.terminal.text import say


def view(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run directories, or a folder of runs.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one HTML file instead of serving.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser, too.")
    ] = False,
) -> None:
    """Show runs on a page: curves, groups side by side, tokens, what became better or worse.

    It follows runs that go on. Its address holds a secret and works on this machine alone.

    Example:  art view runs/default/quickstart
    """
    from art_cli.view.collection import Collection
    from art_cli.view.file import page_of
    from art_cli.view.frame import plotly
    from art_cli.view.server import listen, serve

    plotly()  # before anything is read: the page cannot be shown without Plotly
    collection = Collection(runs or [Path("runs")])
    if html is not None:
        from art_cli.errors import UsageError
        from art_cli.system.files import atomic_write

        if html.is_dir():
            raise UsageError(f"--html {html} is a folder; name a file in it")
        progress("reading the trajectories")
        atomic_write(html, page_of(collection))
        progress("")
        return say(
            f"wrote {html}   ({html.stat().st_size / 2**20:.1f} MiB; it needs no other file)"
        )
    with listen(port) as listener, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(collection, listener, lambda url: _tell(url, open_browser)))
    return None


def _tell(url: str, open_browser: bool) -> None:
    say(f"{url}\nOn another machine: ssh -L the same port. Ctrl-C ends it.")
    if open_browser:
        import webbrowser

        webbrowser.open(url)
