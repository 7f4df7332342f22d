"""What goes on is told again where nothing else is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from art_cli.cli import inputs
from art_cli.system import progress


class Lines:
    """What was told, and whether anything was since `clear`."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._told = threading.Event()

    def say(self, line: str, file: object) -> None:
        self.found.append(line)
        self._told.set()

    def wait(self) -> None:
        self._told.clear()
        assert self._told.wait(60)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    found = Lines()
    monkeypatch.setattr(progress, "LOOKS", 0.01)
    monkeypatch.setattr(inputs, "SILENCE", 0.05)
    monkeypatch.setattr(inputs, "_pulse", None)
    monkeypatch.setattr(inputs, "say", found.say)
    yield found
    assert inputs._pulse
    inputs._pulse.stop()


def test_a_wait_is_told_again_and_again_until_it_ends(lines: Lines) -> None:
    inputs.progress("loading the model")
    for _ in range(3):
        lines.wait()
    assert lines.found[-1].startswith("loading the model (")
    inputs.progress("")
    lines.found.clear()
    inputs._tell_silence()
    assert not lines.found


def test_what_is_counted_ends_with_the_last_of_it(lines: Lines) -> None:
    inputs.progress("episodes", 1, 2)
    lines.wait()
    inputs.progress("episodes", 2, 2)
    lines.found.clear()
    inputs._tell_silence()
    assert not lines.found
