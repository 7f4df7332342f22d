"""`agent.keep`: processes that play one episode after another, so that each starts only once.

    to its stdin     {"art": "episode", "id": "9f2c01ab", "messages": [...], "base_url": "...", ...}
    from its stdout  {"art": "end", "id": "9f2c01ab", "answer": "It is sent."}

Each line is a JSON object. The first holds the request body that a service receives, and the
`workdir` of the episode. The second may have the keys of `AgentEnd`. Other lines are output of the
program. A process plays one episode at a time and exits when stdin closes. `agent.python` runs a
function in the same way, through worker.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import tempfile
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from art_cli.errors import PreflightError
from art_cli.rollout.agents import program
from art_cli.rollout.agents.hosted import CrashError
from art_cli.rollout.agents.program import STOP_TIMEOUT, ProgramRunner
from art_cli.rollout.agents.sandbox import Sandbox
from art_cli.rollout.agents.service import task_of
from art_cli.rollout.agents.workdir import AgentFolder, Workdir
from art_cli.rollout.gateway.asked import RequestError
from art_cli.rollout.gateway.end import AgentEnd
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.system.guard import guarded
from art_cli.system.scratch import make_scratch, remove
from art_cli.types import Trajectory

MAX_LINE = 2**25  # bytes
READY_TIMEOUT = 120.0  # seconds for a worker to import its function
WORKER = Path(__file__).with_name("worker.py")


class PersistentRunner(ProgramRunner):
    """Implements Runner with as many processes as there are concurrent episodes."""

    def __init__(
        self,
        command: list[str],
        pass_env: list[str],
        sandbox: Sandbox | None,
        timeout: float,
        workdir: Workdir | None = None,
    ) -> None:
        """`timeout` is that of an episode, in seconds. Raises like ProgramRunner."""
        super().__init__(command, pass_env, sandbox, workdir)
        self._timeout = timeout
        self._idle: list[_Kept] = []
        self._folders: list[Path] = []  # one per process; contains the folders of its episodes

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        kept = self._idle.pop() if self._idle else await self._start()
        workdir = await self._workdir_of(hosted, kept)
        task = {"art": "episode"} | task_of(hosted, url, self._timeout)
        try:
            end = await kept.play(task | {"workdir": str(workdir)})
        except BaseException as e:
            await kept.stop()
            if kept.exit_code is not None and isinstance(e, CrashError):
                trajectory.metrics["exit_code"] = float(kept.exit_code)
            raise
        else:
            self._idle.append(kept)
        finally:
            if said := kept.said():
                trajectory.logs.append(f"the program printed:\n{said}")
        end.record(trajectory)
        if end.error is not None:
            raise CrashError(end.error)
        return end.answer

    async def close(self) -> None:
        """See Runner. Closes the programs' stdin, and stops those that do not exit."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(kept.end() for kept in idle))
        folders, self._folders = self._folders, []
        await asyncio.gather(*map(remove, folders))

    async def _workdir_of(self, hosted: Hosted, kept: _Kept) -> Path:
        """Return the folder of an episode. Raises the env's exceptions while filling it."""
        if not self._workdir.is_fresh:
            return self._workdir.shared
        workdir = kept.make_workdir(hosted.id)
        try:
            await hosted.work_in(workdir, workdir)
        except BaseException:
            self._idle.append(kept)  # it has not received the episode
            raise
        return workdir

    async def _start(self) -> _Kept:
        place = self._place(make_scratch("agent"))
        self._folders.append(place.folder)
        start = self._sandbox.start(self._command, place, self._passed)
        stdin, requests = os.pipe()
        printed = tempfile.TemporaryFile()  # noqa: SIM115 (kept open)
        fcntl.fcntl(printed, fcntl.F_SETFL, os.O_APPEND)  # it is truncated before each episode
        limit = program.MAX_PRINTED
        words = guarded(start.words, limit=limit, last=start.last, stdin=stdin)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                env=start.environment,
                cwd=start.folder,
                stdin=asyncio.subprocess.PIPE,  # the guard kills all when it closes
                stdout=asyncio.subprocess.PIPE,
                stderr=printed,
                pass_fds=[stdin],
                limit=MAX_LINE,
                start_new_session=True,
            )
        finally:
            os.close(stdin)
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(requests, "wb")
        )
        return _Kept(process, transport, printed, place, self._workdir)

    def _place(self, folder: Path) -> AgentFolder:
        """Return the folders of a new process."""
        return self._workdir.place(folder)


class WorkerRunner(PersistentRunner):
    """Implements Runner for a function in a separate Python environment."""

    def __init__(
        self,
        python: str,
        use: str,
        pass_env: list[str],
        sandbox: Sandbox | None,
        timeout: float,
        workdir: Workdir | None = None,
    ) -> None:
        """`use` is the value of `agent.function`. Raises like ProgramRunner."""
        code = WORKER.read_text(encoding="utf-8")  # a sandbox may hide the file itself
        super().__init__([python, "-u", "-c", code, use], pass_env, sandbox, timeout, workdir)
        self._name = f"agent.python: {python} cannot run {use}"

    def _place(self, folder: Path) -> AgentFolder:
        """Start in the project folder, from which the function is imported."""
        return replace(super()._place(folder), start=Path.cwd())

    async def open(self) -> None:
        """See Runner. Imports the function."""
        kept = await self._start()
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await kept.hear("ready")
        except (CrashError, TimeoutError) as e:
            await kept.stop()
            why = str(e) or f"not imported within {READY_TIMEOUT:g} s"
            raise PreflightError(f"{self._name}: {why}") from None
        except BaseException:
            await kept.stop()
            raise
        self._idle.append(kept)


class _Kept:
    """A persistent process of the program."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        requests: asyncio.WriteTransport,
        printed: Any,
        place: AgentFolder,
        workdir: Workdir,
    ) -> None:
        self._process = process
        self._requests = requests
        self._printed = printed
        self._place = place
        self._workdir = workdir
        self.exit_code: int | None = None

    def make_workdir(self, episode: str) -> Path:
        """Return a new folder for an episode. It remains until the process has ended."""
        folder = self._place.folder / f"episode-{episode}"
        folder.mkdir()
        return folder

    async def play(self, task: dict[str, Any]) -> AgentEnd:
        """Play an episode and return its end. After a CrashError the process must be stopped."""
        self._printed.truncate(0)
        self._requests.write(json.dumps(task).encode() + b"\n")
        told = await self.hear("end")
        if (name := told.pop("id", None)) != task["id"]:
            raise CrashError(f"ended the episode {name!r:.100}, but it was given {task['id']!r}")
        try:
            return AgentEnd.read(json.dumps(told).encode())
        except RequestError as e:
            raise CrashError(f"its line is no end of an episode: {e}") from None

    async def hear(self, word: str) -> dict[str, Any]:
        """Return the next protocol line of kind `word`, without that key. Raises CrashError."""
        assert self._process.stdout
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                raise CrashError(f"wrote a line of more than {MAX_LINE} bytes") from None
            if not line:
                raise CrashError(await self._last_words())
            if (told := _told(line)) is None:
                self._printed.write(line)
                self._printed.flush()
            elif told.pop("art") == word:
                return told

    def said(self) -> str:
        """Return the end of its output in this episode."""
        return program.tail(self._printed)[0] if not self._printed.closed else self._said

    async def end(self) -> None:
        """Close its stdin, wait for it to exit, and stop it if it does not."""
        self._requests.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        await self.stop()

    async def stop(self) -> None:
        """Stop the process and remove its folders."""
        self._requests.close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        else:
            self.exit_code = self._process.returncode
        assert self._process.stdin
        self._process.stdin.close()
        await self._process.wait()
        self._said = self.said()
        self._printed.close()
        await asyncio.gather(*map(remove, self._place.parts))

    async def _last_words(self) -> str:
        code = await self._process.wait()
        said, size = program.tail(self._printed)
        shown = textwrap.indent(said, "  ") or "  (nothing)"
        if size > program.MAX_PRINTED:
            most = f"{program.MAX_PRINTED / 2**20:g} MiB, the most that an episode may print"
            return f"was killed: it printed more than {most}; the last of it:\n{shown}"
        return f"ended with exit code {code}; it printed:\n{shown}{self._workdir.hint(said)}"


def _told(line: bytes) -> dict[str, Any] | None:
    """Parse a line of the protocol. Return None for a line that the program printed."""
    if line.lstrip()[:1] != b"{" or b'"art"' not in line:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "art" in value else None
