"""tau2-bench: customer service at a shop and an airline, scored by the database at the end.

    user        Reason for call: You received your order #W2378156 and wish to exchange ...
    assistant   <tool_call>{"name": "get_order_details", "arguments": {"order_id": "#W2378156"}}...
    tool        {"order_id": "#W2378156", "user_id": "yusuf_rossi_9620", ...}
    assistant   Your keyboard and thermostat are exchanged.

With `user`, a model plays the customer by tau2's own instructions; without, the first message is
what that customer knows and wants, and the first answer without a call ends the episode.
"""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli import (
    Done,
    Env,
    LLMConfig,
    Message,
    Scenario,
    Split,
    Tool,
    ToolError,
    Trajectory,
    play,
    seed_of,
)
from art_envs.adapters.evaluated import is_plain
from art_envs.adapters.library import library

EXTRA = "tau2"
DOMAINS = {"retail": "changes, returns and questions about orders", "airline": "about flights"}
BASIS = {"DB", "COMMUNICATE"}  # what the reward of a task rests on; others are left out
VAL_EVERY = 5  # of tau2's train tasks: it has no val
GREETING = "Hi! How can I help you today?"  # with which tau2 begins; the customer hears it


class Tau2(Env):
    """Customer service at a shop or an airline, from tau2-bench."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        domain: Literal["retail", "airline"]
        user: LLMConfig | None = None  # plays the customer; null: a ticket with all that they know
        max_turns: Annotated[int, Field(ge=1)] = 40

        def __post_init__(self) -> None:
            """Raise ValueError where tau2 is not installed."""
            _tasks(self.domain)

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.task: Any = _tasks(cfg.domain)[scenario.data["task"]]
        self.said: list[Any] = []  # tau2's messages: what its scorers read
        self._owns_db = False
        self._lock = threading.Lock()  # calls of one turn are made at the same time

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the domains."""
        return {f"domain={name}": f"{line}, {len(_tasks(name))}" for name, line in DOMAINS.items()}

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return tau2's tasks: its test, and its train, of which a part is val."""
        for task in _split(cfg.domain)[split]:
            name = f"{cfg.domain}-{task}"
            yield Scenario(id=name, split=split, seed=seed_of(name), data={"task": task})

    @cached_property
    def desk(self) -> Any:
        """The environment of tau2. It has the database of all, until something is written."""
        return _desk(self.cfg.domain, _database(self.cfg.domain))

    async def start(self) -> list[Message]:
        """Return the policy, and what the customer says first."""
        prompts = _module("agent.llm_agent")
        system = prompts.SYSTEM_PROMPT.format(
            agent_instruction=prompts.AGENT_INSTRUCTION, domain_policy=self.desk.get_policy()
        )
        first = str(self.task.user_scenario)
        if self.cfg.user:
            self.said.append(_message("AssistantMessage", role="assistant", content=GREETING))
            heard = await self._customer()
            first = heard if isinstance(heard, str) else first
        return [{"role": "system", "content": system}, {"role": "user", "content": first}]

    def tools(self) -> list[Tool]:
        """Return those of the domain."""
        return _tools(self.cfg.domain)

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Make a call as tau2 does. Raise ToolError where it answers with an error."""
        _refuse_endless(name, arguments)
        with self._lock:
            if not self._owns_db and name in _writes(self.cfg.domain):
                self.desk.tools.db = copy.deepcopy(self.desk.tools.db)
                self._owns_db = True
            asked = _message("ToolCall", id=str(len(self.said)), name=name, arguments=arguments)
            answer = self.desk.get_response(asked)
            self.said += [
                _message("AssistantMessage", role="assistant", tool_calls=[asked]),
                answer,
            ]
        if answer.error:
            raise ToolError(str(answer.content).removeprefix("Error: "))
        return str(answer.content)

    async def reply(self, text: str) -> str | Done:
        """Return what the customer says; there is no answer to a ticket's."""
        if text.strip():
            self.said.append(_message("AssistantMessage", role="assistant", content=text))
        return await self._customer() if self.cfg.user else Done()

    async def _customer(self) -> str | Done:
        simulator = _module("user.user_simulator")
        prompt = simulator.UserSimulator(instructions=str(self.task.user_scenario)).system_prompt
        heard = [
            {"role": "user" if m.role == "assistant" else "assistant", "content": m.content}
            for m in self.said
            if m.role != "tool" and m.content
        ]
        system = {"role": "system", "content": prompt}
        text = (await self.services.llm(self.cfg.user).ask([system, *heard])).text
        self.said.append(_message("UserMessage", role="user", content=text))
        return Done() if simulator.UserSimulator.is_stop(self.said[-1]) else text

    def score(self, trajectory: Trajectory) -> float:
        """Return 1 where the database is as tau2 expects, and all was said that it expects.

        An episode that was cut off earns nothing.
        """
        evaluator = _module("evaluator.evaluator_communicate").CommunicateEvaluator
        found = self.desk.get_db_hash() if self._owns_db else _untouched(self.cfg.domain)
        is_same = found == _expected(self.cfg.domain, self.task.id)
        told = evaluator.calculate_reward(self.task, self.said).reward
        ended = trajectory.stop_reason in ("env", "agent")
        self.metrics = {
            "database": float(is_same),
            "communicated": float(told),
            "tool_errors": float(trajectory.num_tool_errors),
        }
        return float(is_same and ended) * told

    async def judge_context(self) -> str:
        """Return what the customer wants and what tau2 expects."""
        return f"{self.task.user_scenario}\n\n{self.task.evaluation_criteria}"

    def gold(self) -> Iterator[str] | None:
        """Return tau2's own calls, then what must be said. A customer ends it when they like."""
        return None if self.cfg.user else self._calls()

    def _calls(self) -> Iterator[str]:
        criteria = self.task.evaluation_criteria
        for action in criteria.actions or ():
            yield _call(action.name, action.arguments)
        yield "; ".join(criteria.communicate_info or ()) or "Done."

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return tau2's own calls in train tasks, as tickets."""
        ticket = cls.Config(domain=cfg.domain, max_turns=cfg.max_turns)
        for scenario in islice(cls.scenarios(ticket, "train"), num):
            env = cls(scenario, ticket)
            yield play(env, env._calls().__next__)


def _call(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"


def _module(name: str) -> Any:
    """Return a module of tau2, which says nothing and fetches no prices."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    library("tau2", EXTRA)
    library("loguru", EXTRA).logger.disable("tau2")
    return library(f"tau2.{name}", EXTRA)


def _message(kind: str, **fields: Any) -> Any:
    return getattr(_module("data_model.message"), kind)(**fields)


@lru_cache(maxsize=8)
def _tasks(domain: str) -> dict[str, Any]:
    """Return the tasks by their id. Raise ValueError where tau2 is not installed."""
    found = _module(f"domains.{domain}.environment").get_tasks(None)
    return {task.id: task for task in found if {*task.evaluation_criteria.reward_basis} <= BASIS}


@lru_cache(maxsize=8)
def _split(domain: str) -> dict[Split, list[str]]:
    theirs = _module(f"domains.{domain}.environment").get_tasks_split()
    train, test = ([t for t in theirs[name] if t in _tasks(domain)] for name in ("train", "test"))
    val = train[::VAL_EVERY]
    return {"train": [t for t in train if t not in val], "val": val, "test": test}


@lru_cache(maxsize=8)
def _database(domain: str) -> Any:
    """Return the database as every episode finds it; who writes has a copy."""
    return _module(f"domains.{domain}.environment").get_environment().tools.db


def _desk(domain: str, database: Any) -> Any:
    return _module(f"domains.{domain}.environment").get_environment(database)


@lru_cache(maxsize=8)
def _tools(domain: str) -> list[Tool]:
    found = []
    for tool in _desk(domain, _database(domain)).get_tools():
        schema = tool.openai_schema["function"]
        is_writing = tool.name in _writes(domain)
        found.append(
            Tool(
                name=tool.name,
                description=schema["description"],
                parameters=schema["parameters"],
                writes=is_writing,
            )
        )
    return found


@lru_cache(maxsize=8)
def _writes(domain: str) -> frozenset[str]:
    kit = _desk(domain, _database(domain)).tools
    return frozenset(name for name in kit.tools if kit.tool_type(name).value == "write")


@lru_cache(maxsize=8)
def _untouched(domain: str) -> str:
    """Return the digest of the database as it is at the beginning."""
    return _desk(domain, _database(domain)).get_db_hash()


@lru_cache(maxsize=1024)
def _expected(domain: str, task: str) -> str:
    """Return the digest of the database after tau2's own calls; one that fails changes nothing."""
    actions = _tasks(domain)[task].evaluation_criteria.actions or []
    if not any(action.name in _writes(domain) for action in actions):
        return _untouched(domain)
    desk = _desk(domain, copy.deepcopy(_database(domain)))
    for action in actions:
        desk.get_response(_message("ToolCall", name=action.name, arguments=action.arguments))
    return desk.get_db_hash()


def _refuse_endless(name: str, arguments: dict[str, Any]) -> None:
    """Raise ToolError for a power that never ends: `calculate` evaluates what it is given."""
    if name == "calculate" and isinstance(text := arguments.get("expression"), str):
        try:
            is_ending = is_plain(text)
        except SyntaxError:
            return
        if not is_ending:
            raise ToolError("Invalid expression")
