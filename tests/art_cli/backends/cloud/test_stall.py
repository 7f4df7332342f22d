"""Calls that print while they wait, and fall silent."""

from __future__ import annotations

import signal
import socket
import time
from typing import Any

import pytest

from art_cli.backends.cloud import stall as module
from art_cli.backends.cloud.stall import StallError, listening
from art_cli.errors import PreflightError


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.4)


def wait_for_ever() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_who_waits_for_a_socket_that_says_nothing_is_woken(ctrl_c: Any) -> None:
    """Also where Ctrl-C is ignored, as in what a shell has started with `&`."""
    before = signal.signal(signal.SIGINT, ctrl_c)
    began = time.monotonic()
    with pytest.raises(StallError), listening(lambda: False):
        wait_for_ever()
    assert time.monotonic() - began >= 0.4
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_who_prints_is_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE", 2.0)
    with listening(lambda: False) as out:
        for i in range(25):
            print(i, file=out, flush=True)
            time.sleep(0.1)
    assert capsys.readouterr().out.split() == [str(i) for i in range(25)]
    time.sleep(2.5)  # nobody listens any more


def test_what_goes_on_may_be_silent_until_nobody_knows() -> None:
    asked: list[int] = []

    def goes_on() -> bool:
        asked.append(1)
        if len(asked) == 3:
            raise PreflightError("the server does not answer")
        return True

    with pytest.raises(PreflightError, match="does not answer"), listening(goes_on):
        wait_for_ever()
    assert len(asked) == 3


def test_ctrl_c_stays_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), listening(lambda: True):
        raise KeyboardInterrupt
