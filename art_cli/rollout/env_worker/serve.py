"""The program in the env's own interpreter, which plays episodes of one env on request.

Each request runs in its own task. As within art, `start()` and `close()` of an episode run in one
task, and a plain `def` runs in a thread. The requesting process has the deadlines, and cancels.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import cached_property, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Done, Env
from art_cli.envs.digest import code_digest
from art_cli.envs.files import checked_files
from art_cli.envs.registry import env_class
from art_cli.envs.returned import metrics_of, reply_of, reward_of, tool_result, tools_in
from art_cli.envs.tools import offered_by, tools_of
from art_cli.llms.base import NativeCall, Reply
from art_cli.rollout.env_worker.wire import error_of, line_of, outcome_of, told_of, trajectory_of
from art_cli.rollout.episode import caller, in_its_turn
from art_cli.rollout.groups import MAX_SCENARIOS
from art_cli.rollout.lifetime import Lifetime
from art_cli.system.deadline import check_stuck, run_here, user_code
from art_cli.types import Scenario

FOREVER = 1e9  # seconds; the requesting process has the deadlines
END_SECONDS = 3.0  # seconds to close open episodes at the end
OF_CLASS = (
    *("system", "max_turns", "tool_timeout", "episode_timeout", "num_scenarios"),
    "has_side_effects",
)


@dataclass(slots=True)
class _Open:
    """An open episode."""

    env: Env
    lifetime: Lifetime
    gold: Iterator[str] | None = None


class EnvServer:
    """Serves one env."""

    def __init__(self, use: str, write: Callable[[bytes], None]) -> None:
        self._use = use
        self._write = write
        self._made: dict[int, Callable[[], _Open]] = {}  # episodes without a request so far
        self._open: dict[int, _Open] = {}
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._questions: dict[int, asyncio.Future[Reply]] = {}  # to models, by number
        self._numbers = count(1)

    @cached_property
    def _env(self) -> type[Env]:
        """The env's class. Raises UsageError if it does not exist."""
        return env_class(self._use)

    @cached_property
    def _config(self) -> TypeAdapter[Any]:
        return TypeAdapter(self._env.Config)

    async def serve(self, lines: asyncio.Queue[bytes]) -> None:
        """Process protocol lines until an empty one."""
        while line := await lines.get():
            told = json.loads(line)
            do, number = told.pop("do"), told.pop("id", None)
            if number is None:
                getattr(self, f"_told_{do}")(**told)
            else:
                task = self._tasks[number] = asyncio.ensure_future(self._done(do, told))
                task.add_done_callback(partial(self._answer, number))
        for task in list(self._tasks.values()):
            task.cancel()
        closing = [open.lifetime.close() for open in self._open.values()]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), END_SECONDS)

    async def _done(self, do: str, told: dict[str, Any]) -> Any:
        """Run a request and return its result. Raises the env's exceptions."""
        episode = told.pop("episode", None)
        if episode is None:
            with user_code():
                value = getattr(self, f"_class_{do}")(**told)
                return await value if inspect.isawaitable(value) else value
        value = await getattr(self, f"_episode_{do}")(self._at(episode), **told)
        if do == "close":
            self._told_forget(episode)
        return value

    def _answer(self, number: int, task: asyncio.Task[Any]) -> None:
        """Send the answer to a request whose task has ended, even if cancelled before it began."""
        del self._tasks[number]
        try:
            line = line_of({"id": number, "value": task.result()})
        except (Exception, asyncio.CancelledError) as e:
            line = line_of({"id": number, "error": told_of(e, self._owner())})
        self._write(line)

    def _at(self, episode: int) -> _Open:
        """Return an open episode. Raises the exceptions of the env's constructor."""
        if make := self._made.pop(episode, None):
            with user_code():
                self._open[episode] = make()
        return self._open[episode]

    def _owner(self) -> type:
        with suppress(Exception):
            return self._env
        return Env

    # Messages without an answer.

    def _told_open(self, episode: int, scenario: dict[str, Any], args: dict[str, Any]) -> None:
        def make() -> _Open:
            env = self._env(Scenario(**scenario), self._settings(args))
            env.services = _Services(partial(self._ask_model, episode))
            return _Open(env, Lifetime(env))

        self._made[episode] = make

    def _told_forget(self, episode: int) -> None:
        self._made.pop(episode, None)
        self._open.pop(episode, None)

    def _told_cancel(self, of: int) -> None:
        if task := self._tasks.get(of):
            task.cancel()

    def _told_answer(self, of: int, **outcome: Any) -> None:
        question = self._questions.pop(of, None)
        if question is None or question.done():
            return
        if "error" in outcome:
            question.set_exception(error_of(outcome["error"]))
        else:
            reply = outcome["value"]
            calls = tuple(NativeCall(**call) for call in reply["calls"])
            question.set_result(Reply(**{**reply, "calls": calls}))

    # Requests to the class run in the main thread, as in art: libraries set signals on import.

    def _class_describe(self) -> dict[str, Any]:
        env = self._env
        tools_of(env)  # raises UsageError if a tool is invalid
        return {
            "name": env.__name__,
            "doc": env.__doc__,
            "class": {name: getattr(env, name) for name in OF_CLASS},
            "tools": offered_by(env),
            "own": [name for name in ("reply", "gold") if getattr(env, name) != getattr(Env, name)],
            "settings": list(_settings_of(env.Config)),
            "digest": code_digest(env),
            "places": _places(env),
        }

    def _class_ready(self) -> None:
        assert self._env  # it is imported

    def _class_check(self, args: dict[str, Any]) -> str:
        """Return the mistakes in the settings as a text; "" if there are none."""
        try:
            self._settings(args)
        except ValidationError as e:
            wrong = [(".".join(map(str, m["loc"])), m["msg"]) for m in e.errors()]
            told = [(name, said.removeprefix("Value error, ")) for name, said in wrong]
            return "; ".join(f"{name}: {said}" if name else said for name, said in told)
        return ""

    def _class_scenarios(self, args: dict[str, Any], split: Any) -> list[Scenario]:
        found = self._env.scenarios(self._settings(args), split)
        return list(islice(found, MAX_SCENARIOS + 1))

    async def _class_demonstrations(self, args: dict[str, Any], num: int) -> list[Any]:
        def make() -> list[Any]:  # it plays episodes, which needs a separate event loop
            found = self._env.demonstrations(self._settings(args), num)
            return list(islice(found, 2 * num))

        return await run_here(make, what="demonstrations()")

    def _class_task_list(self) -> dict[str, str]:
        return self._env.task_list()

    def _settings(self, args: dict[str, Any]) -> Any:
        return self._config.validate_json(json.dumps(args), strict=True)

    # Requests to an episode.

    async def _episode_start(self, open: _Open) -> dict[str, Any]:
        check_stuck()
        opening = await open.lifetime.start(FOREVER)
        with user_code():
            tools = tools_in(type(open.env), open.env.tools())
        limits = {"max_turns": open.env.max_turns, "tool_timeout": open.env.tool_timeout}
        return {"opening": opening, "tools": tools, **limits}

    async def _episode_call(
        self, open: _Open, name: str, arguments: dict[str, Any], calls_in_turn: int
    ) -> Any:
        open.env.calls_in_turn = calls_in_turn
        call = in_its_turn(open.env, caller(open.env, name, arguments))
        given = await run_here(call, what=f"tool {name}()")
        return outcome_of(given if isinstance(given, Done) else tool_result(open.env, name, given))

    async def _episode_reply(self, open: _Open, text: str) -> Any:
        given = await run_here(open.env.reply, text, what="reply()")
        return outcome_of(given if isinstance(given, Done) else reply_of(open.env, given))

    async def _episode_files(self, open: _Open, workdir: str) -> dict[str, str]:
        open.env.workdir = Path(workdir)
        if type(open.env).files is Env.files:
            return {}
        files = checked_files(type(open.env), await run_here(open.env.files, what="files()"))
        return {name: b64encode(content).decode() for name, content in files.items()}

    async def _episode_gold(self, open: _Open) -> bool:
        with user_code():
            open.gold = open.env.gold()
        return open.gold is not None

    async def _episode_next_gold(self, open: _Open) -> str | None:
        with user_code():
            return next(open.gold or iter(()), None)

    async def _episode_judge_context(self, open: _Open) -> str:
        return str(await run_here(open.env.judge_context, what="judge_context()"))

    async def _episode_score(self, open: _Open, trajectory: dict[str, Any]) -> dict[str, Any]:
        reward = await run_here(open.env.score, trajectory_of(trajectory), what="score()")
        return {"reward": reward_of(open.env, reward), "metrics": metrics_of(open.env)}

    async def _episode_close(self, open: _Open) -> None:
        await open.lifetime.close()

    async def _ask_model(self, episode: int, llm: LLMConfig, question: dict[str, Any]) -> Reply:
        number = next(self._numbers)
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        asked = {"ask": number, "episode": episode, "llm": llm, **question}
        self._write(line_of(asked))
        return await answer


class _Services:
    """Implements Services: art's own process asks the models."""

    def __init__(self, ask: Callable[[LLMConfig, dict[str, Any]], Any]) -> None:
        self._ask = ask

    def llm(self, cfg: LLMConfig) -> Any:
        return _RemoteLLM(cfg, self._ask)


class _RemoteLLM:
    """A model of the run, asked through art's own process."""

    def __init__(self, cfg: LLMConfig, ask: Callable[[LLMConfig, dict[str, Any]], Any]) -> None:
        self._cfg = cfg
        self._ask = ask
        self.name = cfg.model

    async def ask(self, messages: Any, schema: Any = None, tools: Any = None) -> Reply:
        """See LLM."""
        question = {"messages": messages, "schema": schema, "tools": tools}
        return await self._ask(self._cfg, question)


def _settings_of(config: type) -> Iterator[dict[str, Any]]:
    hints = get_type_hints(config)
    kinds = {LLMConfig: "llm", LLMConfig | None: "llm or null"}
    for each in fields(config):
        told = {"name": each.name, "kind": kinds.get(hints[each.name], "any")}
        if each.default is not MISSING:
            told["default"] = to_jsonable_python(each.default)
        elif each.default_factory is not MISSING:
            told["default"] = to_jsonable_python(each.default_factory())
        yield told


def _places(env: type[Env]) -> dict[str, str]:
    """Return `file:line` of each method that is not art's, by name, and of the class by ""."""
    found = {"": ""}
    for name, member in inspect.getmembers_static(env):
        code = getattr(inspect.unwrap(getattr(member, "__func__", member)), "__code__", None)
        if code and not str(getattr(member, "__module__", "")).startswith("art_cli."):
            found[name] = f"{code.co_filename}:{code.co_firstlineno}"
    with suppress(OSError, TypeError):
        found[""] = f"{inspect.getsourcefile(env)}:{inspect.getsourcelines(env)[1]}"
    return found


def main(use: str) -> None:
    """Serve until stdin closes. The env's own input and output are kept out of the protocol."""
    asked, said = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)

    def write(line: bytes) -> None:
        said.write(line)
        said.flush()

    async def go() -> None:
        loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes]()

        def read() -> None:
            for line in asked:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

        threading.Thread(target=read, name="art-env-asked", daemon=True).start()
        await EnvServer(use, write).serve(lines)

    asyncio.run(go())
    os._exit(0)  # does not wait for threads that the env left
