"""A server process that is started with the run and ends with it, however the run ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import httpx

from art_cli.errors import PreflightError
from art_cli.keys import MaskedOutput
from art_cli.system.guard import guarded

START_TIMEOUT = 600.0  # seconds: a large model is loaded in minutes
STOP_TIMEOUT = 5.0  # seconds between asking to stop and killing
SHOWN = 2000  # characters of a failed server's output


class ChildServer:
    """A process that speaks OpenAI's protocol on a local port, under a guard."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
        self._process = process
        self._log = log
        self._writing = threading.Lock()
        assert process.stdout
        self._printed = MaskedOutput(process.stdout, self._keep)
        self.url = f"http://127.0.0.1:{port}"
        self.api_base = f"{self.url}/v1"

    @classmethod
    async def start(
        cls,
        command: list[str],
        timeout: float = START_TIMEOUT,
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> ChildServer:
        """Start the server and wait until it answers.

        `{port}` in the command becomes a free port, `{python}` this interpreter. `env` is added to
        our own. Output is appended to `log`, if given. Raises PreflightError with the output if the
        server ends or does not answer in time.
        """
        port = _free_port()
        words = [
            w.replace("{port}", str(port)).replace("{python}", sys.executable) for w in command
        ]
        if shutil.which(words[0]) is None:
            raise PreflightError(f"cannot start {' '.join(words)}: there is no program {words[0]}")
        printed = log.open("a+b") if log else tempfile.TemporaryFile()  # noqa: SIM115 (kept open)
        process = subprocess.Popen(
            guarded(words),
            stdin=subprocess.PIPE,  # the guard kills everything when it closes
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # Ctrl-C goes to the run, which ends its servers
        )
        server = cls(process, port, printed)
        try:
            await server._until_ready(" ".join(words), timeout)
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def runs(self) -> bool:
        """True if the process is still running."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 + the signal that ended it, or None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._printed.join(STOP_TIMEOUT)  # completes its log
        return 128 - code if code is not None and code < 0 else code

    def said(self) -> str:
        """Return the end of the server's output."""
        if not self.runs:
            self._printed.join(STOP_TIMEOUT)
        with self._writing:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - 4 * SHOWN))
            text = self._log.read().decode(errors="replace")
        return text[-SHOWN:].strip() or "(nothing)"

    async def close(self) -> None:
        """Stop the server: terminate it first, then kill it."""
        assert self._process.stdin
        self._process.terminate()
        await self.ends_within(STOP_TIMEOUT)
        self._process.stdin.close()
        await self.ends_within(STOP_TIMEOUT)
        await asyncio.to_thread(self._printed.join, STOP_TIMEOUT)
        self._log.close()

    def _keep(self, printed: bytes) -> None:
        with self._writing:
            self._log.seek(0, os.SEEK_END)
            self._log.write(printed)
            self._log.flush()

    async def ends_within(self, seconds: float) -> bool:
        """Return whether the process has ended, or ends within this many seconds."""
        deadline = time.monotonic() + seconds
        while self.runs and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return not self.runs

    async def _until_ready(self, command: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if not self.runs:
                    raise PreflightError(
                        f"{command}\nended with exit code {self.exit_code} before it answered; it "
                        f"said:\n{self.said()}"
                    )
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.api_base}/models")).status_code < 500:
                        return
                await asyncio.sleep(0.05)
        raise PreflightError(
            f"{command}\ndid not answer GET {self.api_base}/models within {timeout:g} s; it said:\n"
            f"{self.said()}"
        )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
