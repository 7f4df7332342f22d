"""An episode that continues in another process when its own dies.

All requests of the episode are stored with their answers. A new process replays the requests and
must give the same answers. An episode without a pending request did not kill the process, so it
moves to the new serving process. An episode with a pending request may have killed it, so it is
tried alone in a second process. If that one dies too, the episode fails. Otherwise it continues.

The clock of the waiting call is paused meanwhile.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Env
from art_cli.errors import RemoteError
from art_cli.keys import short_repr
from art_cli.rollout.env_worker.process import EnvWorker, WorkerDiedError, WorkerProcess
from art_cli.rollout.env_worker.wire import told_of
from art_cli.system.deadline import DeadlineError, paused

MOVE_SECONDS = 600.0  # seconds to replay all earlier requests


@dataclass(frozen=True, slots=True)
class EnvAnswer:
    """The answer to a request: a value, or the error that it raised."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the value, or raise the error."""
        if self.error:
            raise self.error
        return self.value

    def is_like(self, other: EnvAnswer) -> bool:
        """Return whether two answers are equal, apart from the traceback of an error."""
        errors = [(type(o.error), str(o.error)) for o in (self, other)]
        return self.value == other.value and errors[0] == errors[1]


@dataclass(frozen=True, slots=True)
class Past:
    """A request with its answer."""

    do: str
    more: dict[str, Any]
    outcome: EnvAnswer


class Copy:
    """An episode in one particular process."""

    def __init__(self, process: WorkerProcess, episode: PlayedEpisode) -> None:
        self.process = process
        self.loop: asyncio.AbstractEventLoop | None = None
        self._episode = episode
        self._answers = list(episode.answers)  # of models, that this process has not received yet
        self._number = next(process.episodes)
        process.served[self._number] = self
        opening = {"scenario": episode.env.scenario, "args": episode.args}
        process.tell("open", episode=self._number, **opening)
        self._forget = weakref.finalize(self, process.tell, "forget", episode=self._number)
        self._forget.atexit = False

    async def ask(self, do: str, more: dict[str, Any]) -> EnvAnswer:
        """Return the answer to a request, including the env's exception. Raises WorkerDiedError."""
        self.loop = asyncio.get_running_loop()
        try:
            return EnvAnswer(await self.process.ask(do, episode=self._number, **more))
        except WorkerDiedError:
            raise
        except Exception as e:
            return EnvAnswer(error=e)

    def now(self, do: str, seconds: float) -> Any:
        """Return the answer to a request, for code without an event loop."""
        return self.process.now(do, seconds, episode=self._number)

    async def close(self) -> None:
        """Close the env. Raises the env's exceptions."""
        (await self.ask("close", {})).get()
        self._forget.detach()

    def drop(self) -> None:
        """Request that the env be closed, without waiting for it."""
        self.process.begin("close", episode=self._number)
        self._forget.detach()

    async def answer(self, told: dict[str, Any]) -> None:
        """Send a model's answer. A question of an earlier process gets the same answer again."""
        question = {key: told[key] for key in ("llm", "messages", "schema", "tools")}
        heard = next((n for n, (asked, _) in enumerate(self._answers) if asked == question), None)
        if heard is None:
            answer = await self._episode.ask_model(question)
        else:
            answer = self._answers.pop(heard)[1]
        self.process.tell("answer", of=told["ask"], **answer)


class PlayedEpisode:
    """One episode, in whichever process currently plays it."""

    def __init__(self, worker: EnvWorker, env: Env, args: Any) -> None:
        """`args` are the env's settings as JSON values."""
        self.env = env
        self.args = args
        self.answers: list[tuple[dict[str, Any], dict[str, Any]]] = []  # of models, by question
        self._worker = worker
        self._home: Copy | None = None
        self._past: list[Past] = []
        self._moving = asyncio.Lock()
        self._is_torn = False  # it ended, or a request was cancelled and may be half done

    async def ask(self, do: str, **more: Any) -> Any:
        """Return the env's answer. Raises the env's exceptions, WorkerDiedError, EnvError."""
        try:
            outcome = await self._ask(do, more)
        except asyncio.CancelledError:
            self._is_torn = True
            raise
        self._past.append(Past(do, more, outcome))
        return outcome.get()

    def now(self, do: str, seconds: float) -> Any:
        """Return the env's answer, for code without an event loop. Does not change the process."""
        self._home = self._home or Copy(self._worker.process(), self)
        return self._home.now(do, seconds)

    async def close(self) -> None:
        """Close the env, unless its process has died."""
        self._is_torn = True  # do not replay it
        self._past.clear()  # frees the trajectory
        if self._home and not self._home.process.death:
            with suppress(WorkerDiedError):  # whichever episode killed it: this one has its reward
                await self._home.close()

    async def ask_model(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask a model of the run. Store and return its answer in the form that is sent."""
        answer: dict[str, Any]
        try:
            llm = self.env.services.llm(TypeAdapter(LLMConfig).validate_python(question["llm"]))
            reply = await llm.ask(question["messages"], question["schema"], question["tools"])
            answer = {"value": reply}
        except Exception as e:
            answer = {"error": told_of(e, type(self.env))}
        self.answers.append((question, answer))
        return answer

    async def _ask(self, do: str, more: dict[str, Any]) -> EnvAnswer:
        try:
            home = await self._at_home()
            return await home.ask(do, more)
        except WorkerDiedError:
            if self._is_torn:
                raise
        return await self._alone(do, more)

    async def _at_home(self) -> Copy:
        """Return the episode in the serving process, and move it there if necessary."""
        async with self._moving:
            if self._home is None or (self._home.process.death and not self._is_torn):
                self._home = await self._copy_in(self._worker.process())
            return self._home

    async def _alone(self, do: str, more: dict[str, Any]) -> EnvAnswer:
        """Return the answer of a process that plays no other episode."""
        with paused():
            await self._worker.turn().acquire()
        try:
            while True:
                process, is_new = self._worker.aside()
                try:
                    copy = await self._copy_in(process)
                    outcome = await copy.ask(do, more)
                except WorkerDiedError as e:
                    if is_new:  # otherwise an earlier episode may be the cause
                        self._worker.convict(self.env.scenario.id, e)
                        raise
                else:
                    self._worker.works()
                    copy.drop()
                    return outcome
        finally:
            self._worker.turn().release()

    async def _copy_in(self, process: WorkerProcess) -> Copy:
        """Return the episode in another process after a replay of all earlier requests.

        Raises WorkerDiedError, DeadlineError, RemoteError if an answer differs.
        """
        copy = Copy(process, self)
        try:
            with paused():
                async with asyncio.timeout(MOVE_SECONDS):
                    await process.ready()
                    for past in list(self._past):
                        again = await copy.ask(past.do, past.more)
                        if not again.is_like(past.outcome):
                            raise RemoteError(self._why_not(past, again))
        except TimeoutError:
            what = "playing the episode again, whose process another one had ended,"
            raise DeadlineError(f"{what} did not end within {MOVE_SECONDS:g} s") from None
        return copy

    def _why_not(self, past: Past, again: EnvAnswer) -> str:
        assert self._home
        how = self._home.process.death.partition("; it printed:")[0]
        before, now = past.outcome, again
        return (
            f"the env's process {how}, through another episode it seems; played again in the next, "
            f"the env answered {past.do}() with {short_repr(now.error or now.value)}, and had "
            f"answered {short_repr(before.error or before.value)}. An env that answers the same "
            "whenever its scenario, its seed and its calls are the same loses no episode through "
            "others"
        )
