"""One episode whose agent is a user's own program. Its policy calls become training sequences.

A call whose messages begin with an earlier call's messages and answer continues that sequence, and
the sampled token ids stay as they are. Any other call (another system prompt, a shortened history,
a concurrent call) begins a new sequence. `dialogue.py` decides which turns act on the env.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, cast

from art_cli.chat.render import Renderer
from art_cli.envs.base import Done, Env, seed_of
from art_cli.errors import BudgetError, ConstraintError, EngineError, LLMError
from art_cli.llms.base import AskedLLM
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.asked import CONTEXT, Answered, Asked, RequestError
from art_cli.rollout.gateway.asked_model import Spoken, ask_model
from art_cli.rollout.gateway.constraint import grammar_of, hold_of
from art_cli.rollout.gateway.dialogue import Dialogue
from art_cli.rollout.gateway.end import AgentEnd, not_counted
from art_cli.rollout.gateway.entrance import Secrets
from art_cli.rollout.gateway.exchange import Talk, answer, begin, count_tokens, read_in
from art_cli.rollout.gateway.routes import Route
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.thread import PolicyTurn, Thread
from art_cli.rollout.policy_agent import record_sampled
from art_cli.system.untrusted import UntrustedValueError, check_json
from art_cli.types import Completion, Message, StopReason, Trajectory

T = TypeVar("T")

OVER = "The episode is over."
CALLS_A_TURN = 10  # policy calls per env turn, if the config sets no limit


class Hosted:
    """An episode at the gateway, and the record of its program's calls."""

    def __init__(self, served: Served, episode: Episode, opening: list[Message], seed: int) -> None:
        self.id = secrets.token_hex(4)
        self.opening = opening
        loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[None] = loop.create_future()  # not caused by the agent
        self.ended: asyncio.Future[StopReason] = loop.create_future()  # by the env, or a limit
        self.told: asyncio.Future[AgentEnd] = loop.create_future()  # by an agent that outlives it
        self.waits_for = ""  # the next action expected of its agent, if known
        self.given: str | None = None  # the answer that the agent wrote to its file
        self.num_calls = 0
        self.num_requests = 0  # of any kind, answered or refused
        self.refusal = ""  # the error that answered the last refused call
        self.num_unheard = 0  # answers that did not reach the client
        self.unknown_fields: Counter[str] = Counter()  # requests that set each field, by its name
        self.usd = 0.0  # cost of models other than the policy
        self.secrets = Secrets()
        self._served = served
        self._episode = episode
        self.work_in = episode.work_in  # lets the env fill the folder in which the agent works
        self._seed = seed
        self._dialogue = Dialogue(opening, episode.trajectory.tools, served.answer_tool)
        self._tools: tuple[list[Any], Renderer | None] = [], None  # of the last call
        self._context_full = False  # of the last call
        self._replied = False

    @property
    def path(self) -> str:
        """The path below the gateway's address."""
        return f"/e/{self.id}/{self.secrets.path}"

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The env's own tools, in OpenAI's form."""
        return self._episode.trajectory.tools

    @property
    def models(self) -> list[str]:
        """The names of the models that answer requests."""
        return ["policy", *self._served.routes.names]

    @property
    def max_model_len(self) -> int:
        """The maximum number of tokens of a prompt and its answer together."""
        return self._served.max_model_len

    @property
    def has_reply(self) -> bool:
        """True if the env answers text, that is, overrides `Env.reply`."""
        return type(self._episode.env).reply is not Env.reply

    @property
    def num_answers(self) -> int:
        """The number of calls that the policy has answered."""
        return len(self._dialogue.turns)

    @property
    def is_out_of_context(self) -> bool:
        """True if a call was too long and none has succeeded since."""
        return self._context_full

    async def complete(self, asked: Asked) -> list[Answered]:
        """Answer a request with turns of the model that it names. Raises RequestError."""
        self._check_calls()
        self.num_calls += 1
        begun = len(self._dialogue.turns)
        route = self._served.routes.of(asked.model)
        if route.llm:
            return [await self._ask(route.llm, asked, begun)]
        engine = route.base or self._served.engine
        renderer = await self._renderer(asked)
        hold = await hold_of(asked, engine)
        thread = self._thread(asked, renderer, route)
        thread.busy = True  # stays so if sampling fails: nothing can continue from here
        talk = thread.conversation
        assert not isinstance(talk, Spoken)
        try:
            new = asked.messages[len(thread.said) :]
            num_prompt = await read_in(talk, new, asked, self.max_model_len)
        except RequestError as e:  # the conversation is unchanged: a shorter one may continue it
            thread.busy, thread.is_full = False, e.code == CONTEXT
            self._context_full |= thread.is_full
            raise
        self._check_goes_on()
        grammar = grammar_of(talk, renderer, asked, hold, engine)
        others = [self._begin(asked, renderer, route, talk.forked()) for _ in range(asked.n - 1)]
        threads = [thread, *others]
        try:
            if others:
                sampled = await asyncio.gather(*(t.sample(asked, grammar) for t in threads))
            else:  # an extra task would cost as much as a short call
                sampled = [await thread.sample(asked, grammar)]
        except ConstraintError as e:
            raise RequestError(400, str(e)) from None
        except EngineError as e:
            self.fail(e)
            raise RequestError(503, str(e), "engine") from e
        talks = [cast(Talk, t.conversation) for t in threads]
        pairs = zip(talks, sampled, strict=True)
        answers = [answer(t, renderer, done, asked, num_prompt) for t, done in pairs]
        for t, answered in zip(threads, answers, strict=True):
            cut = self._is_cut(answered.completion, asked, num_prompt)
            self._dialogue.turns.append(t.add(asked, answered, begun=begun, cut=cut))
            t.busy = False
        self._context_full = False
        return answers

    async def count(self, asked: Asked) -> int:
        """Return the number of prompt tokens that a turn would start from. Raises RequestError."""
        renderer = await self._served.renderer(asked.tools, asked.size)
        return await count_tokens(renderer, asked, self.max_model_len)

    def take_back(self, answers: list[Answered]) -> None:
        """Remove answers that did not reach the client. They are not trained on."""
        for turn in [t for t in self._dialogue.turns if any(t.answered is a for a in answers)]:
            self._dialogue.take_back(turn)
            self.num_unheard += 1

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return the result of a call of one of `tools`.

        Raises RequestError if the episode is over or has failed, or the arguments are not JSON.
        """
        _check_sent([name, arguments])
        turn = self._dialogue.turn_that_calls(name, arguments)
        result = await self._ask_env(turn, partial(self._episode.call_tool, name, arguments))
        return {"role": "tool", "content": OVER} if isinstance(result, Done) else result

    async def reply(self, text: str) -> str:
        """Return the env's answer to a text. Raises RequestError like `call_tool`."""
        _check_sent(text)
        self._replied = True
        turn = self._dialogue.turn_that_says(text)
        result = await self._ask_env(turn, partial(self._episode.reply, text))
        return OVER if isinstance(result, Done) else result

    def tell(self, end: AgentEnd) -> None:
        """Accept the agent's report of the end. Raises RequestError if it reported one before."""
        if self.told.done():
            raise not_counted(not self.told.cancelled())
        self.told.set_result(end)

    async def finish(self, last: str | None) -> StopReason:
        """End the episode after its agent, and send the final text to the env unless it was sent.

        `last` is the final text. If it is None, the text is the answer that the agent wrote to its
        file, else the answer of its main conversation. Raises the env's exceptions.
        """
        if self.failure.done():
            self.failure.result()
        last = self.given if last is None else last
        if last is not None:
            self._context_full = False  # the agent continued without the policy
            last = last.encode(errors="replace").decode()  # a lone surrogate is not valid text
            answer = self._dialogue.turn_that_says(last), last
        else:
            answer = self._dialogue.answer()
        if not self.ended.done() and not self._replied:
            if self._context_full and (answer is None or (answer[0] and answer[0].thread.is_full)):
                return "context"
            if answer is not None and not self._is_beyond(answer[0]):
                turn = self._dialogue.reach_env(answer[0])
                await self._episode.reply(answer[1], turn=turn)
            elif answer is not None:
                return "max_turns"
        return self.ended.result() if self.ended.done() else "env"

    def record(self, trajectory: Trajectory) -> None:
        threads, turns = self._dialogue.threads, self._dialogue.turns
        trained = [t for t in threads if t.is_trained]
        if self._served.routes.train == "main":
            main = self._dialogue.main()
            trained = [t for t in trained if t in main]
        sequences = [s for t in trained for s in t.conversation.sequences]
        own = [t for t in turns if t.thread.is_policy]
        cut = any(t.cut for t in own if t.thread in trained or not t.thread.session)
        record_sampled(trajectory, sequences, [t.answered.completion for t in own], cut=cut)
        trajectory.num_written = sum(t.answered.num_written or 0 for t in own)
        trajectory.usd = self.usd
        trajectory.messages = main = self._dialogue.messages()
        shown = [t.shown for t in threads if t.turns]
        trajectory.side_conversations = [said for said in shown if said != main]
        trajectory.metrics["policy_calls"] = float(len(own))
        if self.num_unheard:
            trajectory.metrics["answers_unheard"] = float(self.num_unheard)

    def close(self) -> None:
        """Free the engine's sessions of this episode."""
        self._end("env")  # a call still in progress sees that the episode ended
        for thread in self._dialogue.threads:
            if thread.session:
                thread.session.close()
        if self.failure.done():
            self.failure.exception()  # mark the exception as retrieved
        self.failure.cancel()
        self.told.cancel()

    def fail(self, error: Exception) -> None:
        """End the episode with a failure not caused by the agent."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def _end(self, reason: StopReason) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    async def _ask_env(
        self, turn: PolicyTurn | None, ask: Callable[..., Coroutine[Any, Any, T | Done]]
    ) -> T | Done:
        if self._is_beyond(turn):
            self._end("max_turns")
        self._check_goes_on()
        try:
            result = await ask(turn=self._dialogue.reach_env(turn))
        except Exception as e:  # the env's own failure ends the episode, not the gateway
            self.fail(e)
            raise RequestError(500, f"the environment failed: {type(e).__name__}", "env") from e
        if isinstance(result, Done):
            self._end("env")
        return result

    def _is_beyond(self, turn: PolicyTurn | None) -> bool:
        """Return whether a turn would exceed the env's `max_turns`."""
        is_new = turn is not None and turn.env_turn is None
        return is_new and self._dialogue.num_env_turns >= self._episode.env.max_turns

    def _check_calls(self) -> None:
        max_turns = self._episode.env.max_turns
        if self._dialogue.num_env_turns >= max_turns:  # no further turn can reach the env
            self._end("max_turns")
        if self.num_calls >= (self._served.max_calls or CALLS_A_TURN * max_turns):
            self._end("max_calls")
        self._check_goes_on()

    def _is_cut(self, completion: Completion, asked: Asked, num_prompt: int) -> bool:
        """Return whether a turn ended at sampling.max_tokens or the context, not the client's."""
        num, ours = len(completion.token_ids), self._served.max_tokens
        small = asked.limit is not None and num >= asked.limit and (not ours or asked.limit < ours)
        full = num_prompt + num >= self._served.max_model_len
        return completion.finish_reason == "length" and (full or not small)

    def _check_goes_on(self) -> None:
        if self.ended.done() or self.failure.done():
            why: str = self.ended.result() if self.ended.done() else "error"
            why += ": agent.max_calls is reached" if why == "max_calls" else ""
            raise RequestError(400, f"{OVER} ({why})", "episode_over")

    async def _ask(self, llm: AskedLLM, asked: Asked, begun: int) -> Answered:
        """Answer a request with another model, and record its turn without training on it."""
        try:
            answered, usd = await ask_model(llm, asked)
        except (LLMError, BudgetError) as e:
            self.fail(e)
            raise RequestError(503, str(e), "model") from e
        self.usd += usd
        kind = llm.name, json.dumps(asked.tools)
        thread = self._fitting(asked, kind) or Thread(kind, bool(asked.tools), Spoken(), None)
        if thread not in self._dialogue.threads:
            thread.is_trained = False
            thread.is_policy = llm is self._served.routes.in_its_place
            self._dialogue.threads.append(thread)
        talk = thread.conversation
        cut = answered.ended == "length" and asked.limit is None
        turn = thread.add(asked, answered, begun=begun, cut=cut)
        talk.messages[:] = thread.said
        self._dialogue.turns.append(turn)
        return answered

    def _fitting(self, asked: Asked, kind: object) -> Thread | None:
        fitting = [t for t in self._dialogue.threads if t.goes_on_as(asked, kind)]
        return max(fitting, key=lambda t: (len(t.said), t.num_tokens), default=None)

    async def _renderer(self, asked: Asked) -> Renderer:
        """Return the template with a request's tools, cached while the tools are the same list."""
        tools, known = self._tools
        if known is None or tools is not asked.tools:
            known = await self._served.renderer(asked.tools, asked.size)
            self._tools = asked.tools, known
        return known

    def _thread(self, asked: Asked, renderer: Renderer, route: Route) -> Thread:
        known = self._fitting(asked, (renderer, route))
        return known or self._begin(asked, renderer, route, begin(renderer, asked))

    def _begin(self, asked: Asked, renderer: Renderer, route: Route, talk: Talk) -> Thread:
        threads, engine = self._dialogue.threads, route.base or self._served.engine
        session = engine.open(seed_of(self._seed, len(threads)), awaited=False)
        thread = Thread((renderer, route), bool(asked.tools), talk, session, busy=True)
        thread.is_trained, thread.is_policy = route.trained, route.base is None
        threads.append(thread)
        return thread


def _check_sent(value: Any) -> None:
    try:
        check_json(value)
    except UntrustedValueError as e:
        raise RequestError(400, f"the arguments cannot be used: {e}") from None
