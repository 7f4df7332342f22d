"""One episode whose agent is somebody's own program: its calls become sequences to train on.

A call whose messages begin with those of an earlier one, and with what was answered to it, goes on
in the same sequence: the ids that were sampled stay as they are. Any other call (another system
prompt, a shortened history, a second one at the same time) begins a sequence of its own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from art_cli.engines.base import Engine, Session
from art_cli.envs.base import Done, Env, seed_of
from art_cli.errors import ConstraintError, EngineError, UsageError
from art_cli.models.plain_text import PlainText
from art_cli.models.render import Renderer
from art_cli.models.turns import parse_tool_calls, spoken
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.asked import CONTEXT, Answered, Asked, RequestError
from art_cli.rollout.gateway.constraint import check_schema, grammar_of
from art_cli.rollout.gateway.end import AgentEnd
from art_cli.rollout.gateway.entrance import Secrets
from art_cli.rollout.gateway.exchange import Talk, answer, begin, count_tokens, echoed, read_in
from art_cli.rollout.policy_agent import record_sampled
from art_cli.system.bounded_cache import Recent
from art_cli.system.deadline import beside
from art_cli.system.outside import OutsideError, check_json
from art_cli.types import Completion, Message, StopReason, Trajectory

T = TypeVar("T")

OVER = "The episode is over."
RENDERERS = 32  # a program has a few sets of tools
RENDERER = 2**18  # bytes of tools that count as one of them


class Served:
    """What the gateway needs of a run."""

    def __init__(
        self, engine: Engine, make_renderer: Callable[[list[Any]], Renderer], max_model_len: int
    ) -> None:
        """`make_renderer` binds the chat template to a set of tools."""
        self.engine = engine
        self.max_model_len = max_model_len

        def make(tools: str) -> Renderer:
            return make_renderer(json.loads(tools))

        def size(tools: str, _: Renderer) -> int:
            return max(len(tools), RENDERER)

        self._cached = Recent(make, size, RENDERER * RENDERERS)

    async def renderer(self, tools: list[dict[str, Any]], size: int) -> Renderer:
        """Return the chat template with these tools, of a request of so many bytes.

        Raises RequestError where it cannot be used with them.
        """
        try:
            return await beside(size, self._cached, json.dumps(tools))
        except UsageError as e:
            raise RequestError(400, str(e)) from None


@dataclass(slots=True)
class _Thread:
    """The calls that extend each other."""

    renderer: Renderer
    conversation: Talk
    session: Session
    said: list[Message] = field(default_factory=list)  # as the program has it
    busy: bool = False

    async def sample(self, asked: Asked, grammar: str | None) -> Completion:
        """Sample the turn that it is ready for."""
        return await self.session.generate(
            list(self.conversation.ids),
            max_tokens=asked.limit,
            stop=asked.stops,
            top_logprobs=asked.top_logprobs,
            grammar=grammar,
        )

    def goes_on_as(self, asked: Asked, renderer: Renderer) -> bool:
        """Return whether a request extends the last one."""
        talk, messages, num = self.conversation, asked.messages, len(self.said)
        if asked.raw is not None or isinstance(talk, PlainText):
            is_text = asked.raw is not None and isinstance(talk, PlainText)
            return is_text and not self.busy and talk.goes_on_as(asked.raw)
        if self.busy or renderer is not self.renderer or len(messages) <= num:
            return False
        return all(_same(a, b) for a, b in zip(self.said, messages, strict=False))


class Hosted:
    """An episode at the gateway, and what the program makes of it."""

    def __init__(self, served: Served, episode: Episode, opening: list[Message], seed: int) -> None:
        self.id = secrets.token_hex(4)
        self.opening = opening
        loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[None] = loop.create_future()  # that is not the agent's
        self.ended: asyncio.Future[StopReason] = loop.create_future()  # by the env, or a limit
        self.told: asyncio.Future[AgentEnd] = loop.create_future()  # by an agent that lives on
        self.waits_for = ""  # what its agent has to do next, where that is known
        self.num_calls = 0
        self.secrets = Secrets()
        self._served = served
        self._episode = episode
        self._seed = seed
        self._threads: list[_Thread] = []
        self._completions: list[Completion] = []
        self._last: str | None = None  # turn that was sampled
        self._replied = False

    @property
    def path(self) -> str:
        """Where it is reached, below the gateway's address."""
        return f"/e/{self.id}/{self.secrets.path}"

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The env's own tools, in OpenAI's form."""
        return self._episode.trajectory.tools

    @property
    def models(self) -> list[str]:
        """The names of what answers."""
        return ["policy"]

    @property
    def max_model_len(self) -> int:
        """How many tokens a prompt and its answer may have together."""
        return self._served.max_model_len

    @property
    def has_reply(self) -> bool:
        """Whether the env answers to words."""
        return type(self._episode.env).reply is not Env.reply

    @property
    def num_answers(self) -> int:
        """Calls that the policy has answered."""
        return len(self._completions)

    async def complete(self, asked: Asked) -> list[Answered]:
        """Answer a request with turns of the policy. Raises RequestError."""
        self._check_open()
        self.num_calls += 1
        renderer = await self._served.renderer(asked.tools, asked.size)
        await check_schema(asked, self._served.engine)
        thread = self._thread(asked, renderer)
        thread.busy = True  # and stays so where this fails: nothing can go on behind it
        talk = thread.conversation
        try:
            new = asked.messages[len(thread.said) :]
            num_prompt = await read_in(talk, new, asked, self.max_model_len)
        except RequestError as e:
            if e.code == CONTEXT:
                self._end("context")
            raise
        self._check_goes_on()
        grammar = grammar_of(talk, renderer, asked, self._served.engine)
        threads = [thread, *(self._beside(thread) for _ in range(asked.n - 1))]
        try:
            sampled = await asyncio.gather(*(t.sample(asked, grammar) for t in threads))
        except ConstraintError as e:
            raise RequestError(400, str(e)) from None
        except EngineError as e:
            self.fail(e)
            raise RequestError(503, str(e), "engine") from e
        answers = [
            answer(t.conversation, renderer, completion, asked, num_prompt)
            for t, completion in zip(threads, sampled, strict=True)
        ]
        for t, answered in zip(threads, answers, strict=True):
            self._completions.append(answered.completion)
            t.said = [*asked.messages, echoed(answered, asked.prefill)]
            t.busy = False
        self._last = None if answers[0].calls else thread.said[-1]["content"]
        return answers

    async def count(self, asked: Asked) -> int:
        """Return how many tokens a turn would stand behind. Raises RequestError."""
        renderer = await self._served.renderer(asked.tools, asked.size)
        return await count_tokens(renderer, asked, self.max_model_len)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return what one of `tools` gives.

        Raise RequestError where the episode is over or broken, or the arguments are not JSON.
        """
        _check_sent([name, arguments])
        result = await self._ask_env(
            self._episode.call_tool(name, arguments, turn=self._present_turn())
        )
        return {"role": "tool", "content": OVER} if isinstance(result, Done) else result

    async def reply(self, text: str) -> str:
        """Return what the env answers to words. Raise RequestError as `call_tool` does."""
        _check_sent(text)
        self._replied = True
        result = await self._ask_env(self._episode.reply(text, turn=self._present_turn()))
        return OVER if isinstance(result, Done) else result

    def tell(self, end: AgentEnd) -> None:
        """Take the end that the agent tells. Raises RequestError where it told one before."""
        if self.told.done():
            raise not_counted(not self.told.cancelled())
        self.told.set_result(end)

    async def finish(self, last: str | None) -> StopReason:
        """End the episode after its agent: what was said last goes to the env, unless it did.

        `last` None: the policy's last turn, if it called nothing. Raises what the env raises.
        """
        if self.failure.done():
            self.failure.result()
        last = self._last if last is None else last
        if not self.ended.done() and not self._replied and last is not None:
            await self._episode.reply(last, turn=self._present_turn())
        return self.ended.result() if self.ended.done() else "env"

    def record(self, trajectory: Trajectory) -> None:
        sequences = [s for t in self._threads for s in t.conversation.sequences]
        record_sampled(trajectory, sequences, self._completions)
        said = [m for t in self._threads for m in t.conversation.messages]
        trajectory.messages = [_with_calls(m) for m in said] or list(self.opening)

    def close(self) -> None:
        """Free what the engine holds for it."""
        self._end("env")  # a call that is still on its way finds it so
        for thread in self._threads:
            thread.session.close()
        if self.failure.done():
            self.failure.exception()  # it was seen
        self.failure.cancel()
        self.told.cancel()

    def fail(self, error: Exception) -> None:
        """End the episode by a failure that is not the agent's."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def _end(self, reason: StopReason) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    async def _ask_env(self, asked: Coroutine[Any, Any, T | Done]) -> T | Done:
        try:
            self._check_open()
            result = await asked
        except RequestError:
            asked.close()
            raise
        except Exception as e:  # the env's own failure ends the episode, not the gateway
            self.fail(e)
            raise RequestError(500, f"the environment failed: {type(e).__name__}", "env") from e
        if isinstance(result, Done):
            self._end("env")
        return result

    def _present_turn(self) -> int:
        """Return the turn that the env is asked in: all that one answer of the policy led to."""
        return max(len(self._completions) - 1, 0)

    def _check_open(self) -> None:
        if self.num_calls >= self._episode.env.max_turns and not self.ended.done():
            self._end("max_turns")
        self._check_goes_on()

    def _check_goes_on(self) -> None:
        if self.ended.done() or self.failure.done():
            why = self.ended.result() if self.ended.done() else "error"
            raise RequestError(400, f"{OVER} ({why})", "episode_over")

    def _thread(self, asked: Asked, renderer: Renderer) -> _Thread:
        fitting = [t for t in self._threads if t.goes_on_as(asked, renderer)]
        if fitting:
            return max(fitting, key=lambda t: (len(t.said), len(t.conversation.ids)))
        return self._begin(renderer, begin(renderer, asked))

    def _beside(self, thread: _Thread) -> _Thread:
        """Begin another thread that has read the same, for another turn behind it."""
        return self._begin(thread.renderer, thread.conversation.forked())

    def _begin(self, renderer: Renderer, conversation: Talk) -> _Thread:
        seed = seed_of(self._seed, len(self._threads))
        session = self._served.engine.open(seed, awaited=False)
        thread = _Thread(renderer, conversation, session, busy=True)
        self._threads.append(thread)
        return thread


def not_counted(told: bool) -> RequestError:
    """Return what an agent hears that tells an end where one was `told`, or nobody waits for it."""
    if told:
        text = "the end of this episode was told before, and counted; this one is not"
        return RequestError(409, text, "already_counted")
    text = "the episode was over before its end was told, which is not counted"
    return RequestError(409, text, "episode_over")


def _check_sent(value: Any) -> None:
    try:
        check_json(value)
    except OutsideError as e:
        raise RequestError(400, f"the arguments cannot be used: {e}") from None


def _same(a: Message, b: Message) -> bool:
    """Return whether two texts say the same: clients trim them, or write a call's JSON anew.

    Some send the thinking back, others do not.
    """
    if a["role"] != b["role"] or a["role"] != "assistant":
        return a["role"] == b["role"] and a["content"].strip() == b["content"].strip()
    return spoken(a["content"]).strip() == spoken(b["content"]).strip()


def _with_calls(message: Message) -> Message:
    if message["role"] != "assistant":
        return message
    calls = [c for c in parse_tool_calls(spoken(message["content"])) if not isinstance(c, str)]
    return {**message, "tool_calls": calls} if calls else message
