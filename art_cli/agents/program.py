"""`agent.type: program`: a process an episode, in any language."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO

from art_cli.agents.hosted import CrashError
from art_cli.errors import PreflightError
from art_cli.gateway.hosted import Hosted
from art_cli.types import Trajectory

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")  # of our own environment
SHOWN = 4000  # characters of what it printed that are kept, from the end
PR_SET_PDEATHSIG = 1  # of Linux: what a child gets when its parent dies
STOP_TIMEOUT = 2.0  # seconds between asking to stop and killing


class ProgramRunner:
    """Implements Runner."""

    def __init__(self, command: list[str], pass_env: list[str]) -> None:
        """`pass_env` names the variables that a program gets beside ours.

        Raises PreflightError where there is no such program, or no such variable.
        """
        if shutil.which(command[0]) is None:
            raise PreflightError(
                f"agent.command: there is no program {command[0]!r}, neither in PATH nor as a file "
                f"below {Path.cwd()}"
            )
        if missing := [name for name in pass_env if name not in os.environ]:
            raise PreflightError(f"agent.pass_env: {', '.join(missing)} is not set")
        self._command = command
        self._environment = {k: os.environ[k] for k in (*KEPT, *pass_env) if k in os.environ}

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        """See Runner."""
        with tempfile.TemporaryDirectory(prefix="art-episode-") as folder:
            scenario = Path(folder) / "scenario.json"
            task = {"messages": hosted.opening, "tools": hosted.tools}
            scenario.write_text(json.dumps(task), encoding="utf-8")
            environment = self._environment | {
                "OPENAI_BASE_URL": f"{url}/v1",
                "OPENAI_API_KEY": "none",  # clients insist on one; the address holds the secret
                "ART_MCP_URL": f"{url}/mcp",
                "ART_SCENARIO_FILE": str(scenario),
            }
            with open(Path(folder) / "printed", "w+b") as printed:
                try:
                    code = await self._process(environment, printed)
                finally:
                    said = _tail(printed)
                    if said:
                        trajectory.logs.append(f"the program printed:\n{said}")
        trajectory.metrics["exit_code"] = float(code)
        if code != 0:
            raise CrashError(f"ended with exit code {code}; it printed:\n{said or '(nothing)'}")
        return None

    async def _process(self, environment: dict[str, str], printed: IO[bytes]) -> int:
        """-> the exit code. Nothing of the process group survives this."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
            raise
        finally:
            _signal_group(process.pid, signal.SIGKILL)
            await process.wait()


def _die_with_parent() -> None:
    """Run in a child: kill -9 of the run must not leave it behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _tail(file: IO[bytes]) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - 4 * SHOWN))
    return file.read().decode(errors="replace")[-SHOWN:].strip()
