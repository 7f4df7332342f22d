"""`agent.use: program`: one process per episode, in any language."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import textwrap
from pathlib import Path
from typing import IO

from art_cli.envs.files import read_below
from art_cli.errors import PreflightError
from art_cli.keys import mask_keys
from art_cli.rollout.agents.hosted import CrashError
from art_cli.rollout.agents.sandbox import NoSandbox, Sandbox
from art_cli.rollout.agents.workdir import AgentFolder, Workdir
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.system.guard import guarded, hide
from art_cli.system.scratch import make_scratch
from art_cli.system.untrusted import MAX_TEXT
from art_cli.types import Trajectory

SHOWN = 4000  # characters of the output that are stored, from the end
MAX_PRINTED = 64 * 2**20  # bytes in one episode
ANSWER = "answer.txt"
STOP_TIMEOUT = 2.0  # seconds between asking to stop and killing


class ProgramRunner:
    """Implements Runner."""

    def __init__(
        self,
        command: list[str],
        pass_env: list[str],
        sandbox: Sandbox | None = None,
        workdir: Workdir | None = None,
    ) -> None:
        """Check that the program can start. `pass_env` names variables to pass on besides ours.

        From now on this process is hidden from the programs. Raises PreflightError if the program
        or a variable does not exist, or the sandbox does not work.
        """
        self._sandbox = sandbox or NoSandbox()
        self._workdir = workdir or Workdir()
        command = self._workdir.command(command)
        self._sandbox.check(command, self._workdir.shared)
        if missing := [name for name in pass_env if name not in os.environ]:
            raise PreflightError(f"agent.pass_env: {', '.join(missing)} is not set")
        self._command = command
        self._passed = {name: os.environ[name] for name in pass_env}
        self._passed |= self._workdir.environment(command, self._passed)
        hide()

    async def open(self) -> None:
        """See Runner."""

    async def close(self) -> None:
        """See Runner."""

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        place = self._workdir.place(folder := make_scratch("episode"))
        await hosted.work_in(folder, place.start if self._workdir.is_fresh else None)
        with tempfile.TemporaryFile() as printed:  # a file without a name needs no cleanup
            scenario = folder / "scenario.json"
            task = {"messages": hosted.opening, "tools": hosted.tools}
            scenario.write_text(json.dumps(task), encoding="utf-8")
            anthropics = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
            if anthropics.keys() & self._passed.keys():  # the user's own, for other calls
                anthropics = {}
            ours = {
                "OPENAI_BASE_URL": f"{url}/v1",
                "OPENAI_API_BASE": f"{url}/v1",  # its former name, which LlamaIndex reads
                "OPENAI_API_KEY": "none",  # clients require one; the URL holds the secret
                "ART_MCP_URL": f"{url}/mcp",
                "ART_SCENARIO_FILE": str(scenario),
                "ART_ANSWER_FILE": str(folder / ANSWER),
            }
            given = self._passed | anthropics | ours
            try:
                code = await self._process(place, given, printed)
            finally:
                hosted.given = _written(folder)
                said, size = tail(printed)
                if said:
                    trajectory.logs.append(f"the program printed:\n{said}")
        trajectory.metrics["exit_code"] = float(code)
        shown = textwrap.indent(said, "  ") or "  (nothing)"
        if size > MAX_PRINTED:
            most = f"{MAX_PRINTED / 2**20:g} MiB, the most that an episode may print"
            raise CrashError(f"was killed: it printed more than {most}; the last of it:\n{shown}")
        if code != 0:
            hint = self._workdir.hint(said)
            raise CrashError(f"ended with exit code {code}; it printed:\n{shown}{hint}")
        return None

    async def _process(self, place: AgentFolder, given: dict[str, str], printed: IO[bytes]) -> int:
        """Run the program. Return its exit code once all of its child processes have ended."""
        start = self._sandbox.start(self._command, place, given)
        process = await asyncio.create_subprocess_exec(
            *guarded(start.words, limit=MAX_PRINTED, last=start.last),
            env=start.environment,
            cwd=start.folder,
            stdin=asyncio.subprocess.PIPE,  # the guard kills all processes when it closes
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        assert process.stdin
        try:
            return await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
            raise
        finally:
            process.stdin.close()
            await process.wait()


def _written(folder: Path) -> str | None:
    """Return the answer that a program wrote to its file; None if there is none."""
    answer = read_below(folder, ANSWER)
    return answer[:MAX_TEXT].decode(errors="replace").strip() or None if answer else None


def tail(file: IO[bytes]) -> tuple[str, int]:
    """Return the end of the output, and the size of all of it in bytes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4 * SHOWN))
    text = mask_keys(file.read().decode(errors="replace"))
    return text[-SHOWN:].strip(), size
