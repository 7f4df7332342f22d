"""A task for `env.python` of whose scenarios a half go wrong, each in a way that its seed names."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import subprocess
import sys
import time

import art_cli as art
from art_cli import errors

PATIENCE = 10.0  # seconds that a tool has
STOPPED = 0.5  # seconds that a process stands still
ERRORS = ("BudgetError", "Interrupted", "EngineError", "EnvError", "PreflightError")
ENDING = ("os._exit", "os._exit in a thread", "killed", "no protocol", "half a line")
FAILING = (*ERRORS, *ENDING, "sys.exit", "raises", "hangs", "hangs in a thread")
HARMLESS = ("stopped", "prints", "nothing")
JUNK = (b"[]", b"null", b"{}", b'{"id": [1]}', b'{"id": 1, "error": 5}', b"[" * 60_000, b"\xff")


def kind_of(seed: int) -> str:
    """What goes wrong in the scenario with this seed."""
    rng = random.Random(seed)
    return rng.choice((*FAILING, *HARMLESS)) if rng.random() < 0.5 else "nothing"


def reward_of(seed: int) -> float:
    """The reward of an episode that nothing has disturbed."""
    return 3 + seed % 97 / 97


class Faulty(art.Env):
    """Call a tool three times; the second call may fail, hang, or end the process."""

    tool_timeout = PATIENCE

    async def start(self) -> str:
        """What is to come."""
        self.num = 0
        return kind_of(self.scenario.seed)

    @art.tool()
    async def go(self) -> str:
        """Go on."""
        self.num += 1
        await asyncio.sleep(self.rng.random() / 100)
        return await self._fault() if self.num == 2 else f"{self.num} {self.rng.random()}"

    async def reply(self, text: str) -> art.Done:
        """The end."""
        return art.Done()

    async def score(self, trajectory: art.Trajectory) -> float:
        """How often the tool was called here, and the seed."""
        return self.num + self.scenario.seed % 97 / 97

    async def _fault(self) -> str:
        kind = kind_of(self.scenario.seed)
        if kind in ERRORS:
            raise getattr(errors, kind)("of the env")
        match kind:
            case "os._exit":
                os._exit(3)
            case "os._exit in a thread":
                await asyncio.to_thread(os._exit, 3)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "no protocol":
                _write(JUNK[self.scenario.seed % len(JUNK)] + b"\n")
            case "half a line":
                _write(b'{"id": 1, "val')
                os._exit(0)
            case "sys.exit":
                sys.exit(3)
            case "raises":
                raise RuntimeError("as it was told to")
            case "hangs":
                await asyncio.sleep(1e6)
            case "hangs in a thread":
                await asyncio.to_thread(time.sleep, 2 * PATIENCE)
            case "stopped":
                words = f"sleep {STOPPED}; kill -CONT {os.getpid()}"
                subprocess.Popen(["sh", "-c", words], start_new_session=True)
                os.kill(os.getpid(), signal.SIGSTOP)
            case "prints":
                print("{}\n" * 10_000, flush=True)
        return "done"


def _write(text: bytes) -> None:
    """Write into the pipe that the process answers through, of which an env knows nothing."""
    for descriptor in range(3, 64):
        try:
            mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
            is_pipe = os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:")
        except OSError:
            continue
        if mode == os.O_WRONLY and is_pipe:
            os.write(descriptor, text)
