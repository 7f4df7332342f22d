"""One episode whose agent is somebody's own program: its calls become sequences to train on.

A call whose messages begin with those of an earlier one, and with what was answered to it, goes on
in the same sequence: the ids that were sampled stay as they are. Any other call (another system
prompt, a shortened history, a second one at the same time) begins a sequence of its own. What the
env is asked, and by which turn, stands beside them: `dialogue.py` says what is the play.
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
CALLS_A_TURN = 10  # of the policy, where the config says no limit


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
        self.given: str | None = None  # the answer that the agent wrote down
        self.num_calls = 0
        self.num_requests = 0  # of any kind, answered or refused
        self.refusal = ""  # what was said to the last call that was refused
        self.num_unheard = 0  # answers that nobody received
        self.unknown_fields: Counter[str] = Counter()  # by name: requests that set it
        self.usd = 0.0  # that models beside the policy have cost
        self.secrets = Secrets()
        self._served = served
        self._episode = episode
        self.work_in = episode.work_in  # lets the env fill the folder in which the agent works
        self._seed = seed
        self._dialogue = Dialogue(opening, episode.trajectory.tools, served.answer_tool)
        self._tools: tuple[list[Any], Renderer | None] = [], None  # of the last call
        self._context_full = False  # of the call that was made last
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
        """The names of what answers."""
        return ["policy", *self._served.routes.names]

    @property
    def max_model_len(self) -> int:
        """Number of tokens that a prompt and its answer may have together."""
        return self._served.max_model_len

    @property
    def has_reply(self) -> bool:
        """True if the env answers to words."""
        return type(self._episode.env).reply is not Env.reply

    @property
    def num_answers(self) -> int:
        """Calls that the policy has answered."""
        return len(self._dialogue.turns)

    @property
    def is_out_of_context(self) -> bool:
        """True if no call has succeeded since one was too long."""
        return self._context_full

    async def complete(self, asked: Asked) -> list[Answered]:
        """Answer a request with turns of who answers to its model. Raises RequestError."""
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
        thread.busy = True  # and stays so where this fails: nothing can go on behind it
        talk = thread.conversation
        assert not isinstance(talk, Spoken)
        try:
            new = asked.messages[len(thread.said) :]
            num_prompt = await read_in(talk, new, asked, self.max_model_len)
        except RequestError as e:  # the conversation is what it was: a shorter one may go on
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
            else:  # a task of its own would cost as much as a short call
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
        """Return how many tokens a turn would stand behind. Raises RequestError."""
        renderer = await self._served.renderer(asked.tools, asked.size)
        return await count_tokens(renderer, asked, self.max_model_len)

    def take_back(self, answers: list[Answered]) -> None:
        """Forget answers that nobody received: the client had gone. They are not trained on."""
        for turn in [t for t in self._dialogue.turns if any(t.answered is a for a in answers)]:
            self._dialogue.take_back(turn)
            self.num_unheard += 1

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Message:
        """Return what one of `tools` gives.

        Raise RequestError where the episode is over or broken, or the arguments are not JSON.
        """
        _check_sent([name, arguments])
        turn = self._dialogue.turn_that_calls(name, arguments)
        result = await self._ask_env(turn, partial(self._episode.call_tool, name, arguments))
        return {"role": "tool", "content": OVER} if isinstance(result, Done) else result

    async def reply(self, text: str) -> str:
        """Return what the env answers to words. Raise RequestError as `call_tool` does."""
        _check_sent(text)
        self._replied = True
        turn = self._dialogue.turn_that_says(text)
        result = await self._ask_env(turn, partial(self._episode.reply, text))
        return OVER if isinstance(result, Done) else result

    def tell(self, end: AgentEnd) -> None:
        """Take the end that the agent tells. Raises RequestError where it told one before."""
        if self.told.done():
            raise not_counted(not self.told.cancelled())
        self.told.set_result(end)

    async def finish(self, last: str | None) -> StopReason:
        """End the episode after its agent: what was said last goes to the env, unless it did.

        `last` None: what the agent wrote down, or what its main conversation came to. Raises what
        the env raises.
        """
        if self.failure.done():
            self.failure.result()
        last = self.given if last is None else last
        if last is not None:
            self._context_full = False  # it went on without the policy
            last = last.encode(errors="replace").decode()  # half a surrogate pair is no text
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
        """Free what the engine holds for it."""
        self._end("env")  # a call that is still on its way finds it so
        for thread in self._dialogue.threads:
            if thread.session:
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
        """Return whether a turn would be one more than the env has."""
        is_new = turn is not None and turn.env_turn is None
        return is_new and self._dialogue.num_env_turns >= self._episode.env.max_turns

    def _check_calls(self) -> None:
        max_turns = self._episode.env.max_turns
        if self._dialogue.num_env_turns >= max_turns:  # nothing that it says can reach the env
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
        """Answer a request with a model that is asked; its turn is in the record, untrained."""
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
        """Return the template with a request's tools; one that grew has those very objects."""
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
