"""Commands of art in this process, as if they were typed in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError


def art(folder: Path, *arguments: str) -> str:
    """Run a command in a folder; return what it prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, list(arguments))
    if isinstance(done.exception, ArtError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout
