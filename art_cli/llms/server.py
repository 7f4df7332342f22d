"""A server of one's own that is started with the run and ends with it, however the run ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO

import httpx

from art_cli.errors import PreflightError

START_TIMEOUT = 600.0  # seconds: a large model is loaded in minutes
STOP_TIMEOUT = 5.0  # seconds between asking to stop and killing
PR_SET_PDEATHSIG = 1  # of Linux: what a child gets when its parent dies
SHOWN = 2000  # characters of what a server that failed has said


class Server:
    """A process group that answers OpenAI's protocol on a port of this machine."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
        self._process = process
        self._log = log
        self.api_base = f"http://127.0.0.1:{port}/v1"

    @classmethod
    async def start(cls, command: list[str], timeout: float = START_TIMEOUT) -> Server:
        """Start it and wait until it answers.

        `{port}` in the command becomes a free port, `{python}` this interpreter. Raises
        PreflightError, with what it printed, where it ends or does not answer in time.
        """
        port = _free_port()
        words = [
            w.replace("{port}", str(port)).replace("{python}", sys.executable) for w in command
        ]
        log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as e:
            log.close()
            raise PreflightError(f"cannot start {' '.join(words)}: {e.strerror}") from e
        server = cls(process, port, log)
        try:
            await server._until_ready(" ".join(words), timeout)
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        """End the whole process group."""
        for number, patience in ((signal.SIGTERM, STOP_TIMEOUT), (signal.SIGKILL, STOP_TIMEOUT)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            if await self._ends_within(patience):
                break
        with contextlib.suppress(ProcessLookupError):  # what it started may outlive it
            os.killpg(self._process.pid, signal.SIGKILL)
        self._log.close()

    async def _until_ready(self, command: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if self._process.poll() is not None:
                    raise PreflightError(
                        f"{command}\nended with exit code {self._process.returncode} before it "
                        f"answered; it said:\n{self._said()}"
                    )
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.api_base}/models")).status_code < 500:
                        return
                await asyncio.sleep(0.05)
        raise PreflightError(
            f"{command}\ndid not answer GET {self.api_base}/models within {timeout:g} s; it said:\n"
            f"{self._said()}"
        )

    async def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return self._process.poll() is not None

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-SHOWN:].strip() or "(nothing)"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def die_with_parent() -> None:
    """Run in a child: kill -9 of the run must not leave it behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
