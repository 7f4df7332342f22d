"""tau2-bench: customer service at a shop, an airline and a phone company, scored as tau2 does.

    user        Reason for call: You received your order #W2378156 and wish to exchange ...
    assistant   <tool_call>{"name": "get_order_details", "arguments": {"order_id": "#W2378156"}}...
    tool        {"order_id": "#W2378156", "user_id": "yusuf_rossi_9620", ...}
    assistant   Your keyboard and thermostat are exchanged.

With `user`, a model plays the customer by tau2's own instructions; without, the first message is
what that customer knows and wants, and the first answer without a call ends the episode. In
telecom customers have tools of their own, to look at their phone and to change it: the model that
plays them calls them, and without it the assistant does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli import Done, Env, LLMConfig, Message, Scenario, Split, Tool, Trajectory, play, seed_of
from art_envs.adapters.tau2_customer import Tau2Customer, Tau2ModelCustomer, Tau2ToldCustomer
from art_envs.adapters.tau2_library import DOMAINS, module, sets_of, split_of, task_of, tasks_of
from art_envs.adapters.tau2_world import DONE, DUAL, Tau2World, tools_of_customer, tools_of_desk

GREETING = "Hi! How can I help you today?"  # with which tau2 begins; the customer hears it


class Tau2(Env):
    """Customer service at a shop, an airline or a phone company, from tau2-bench."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        domain: Literal["retail", "airline", "telecom"]
        tasks: Literal["base", "small", "full"] = "base"  # tau2's sets; telecom alone has others
        user: LLMConfig | None = None  # plays the customer; null: a ticket with all that they know
        max_turns: Annotated[int, Field(ge=1)] = 40

        def __post_init__(self) -> None:
            """Raise ValueError where tau2 is not installed, or has no such tasks."""
            tasks_of(self.domain, self.tasks)

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.task: Any = task_of(cfg.domain, cfg.tasks, scenario.data["task"])
        self._is_solo = cfg.domain in DUAL and not cfg.user
        self.world = Tau2World(cfg.domain, cfg.tasks, self.task, solo=self._is_solo)

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the domains and their sets of tasks, with descriptions and sizes."""
        return {
            f"domain={domain}" + f" tasks={tasks}" * (tasks != "base"): f"{line}, {num}"
            for domain, line in DOMAINS.items()
            for tasks, num in sets_of(domain).items()
        }

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return tau2's tasks of a split. A part of tau2's train tasks is val."""
        for task in split_of(cfg.domain, cfg.tasks)[split]:
            name = f"{cfg.domain}-{task}"
            data = {"task": task, **_tags(task)} if cfg.domain in DUAL else {"task": task}
            yield Scenario(id=name, split=split, seed=seed_of(name), data=data)

    async def start(self) -> list[Message]:
        """Return the policy and the customer's first message."""
        prompts = module("agent.llm_agent")
        instruction = prompts.AGENT_INSTRUCTION
        first = str(self.task.user_scenario)
        if self._is_solo:
            instruction = prompts.AGENT_SOLO_INSTRUCTION.format(stop_function_name=DONE.name)
            first = f"<ticket>\n{self.task.ticket}\n</ticket>"
        system = prompts.SYSTEM_PROMPT.format(
            agent_instruction=instruction, domain_policy=self.world.policy
        )
        if self.cfg.user:
            self.world.say("assistant", GREETING)
            heard = await self._hear(GREETING)
            first = heard if isinstance(heard, str) else first
        return [{"role": "system", "content": system}, {"role": "user", "content": first}]

    def tools(self) -> list[Tool]:
        """Return the domain's tools. Without a customer, include the tools of the customer."""
        return tools_of_desk(self.cfg.domain, solo=self._is_solo)

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str | Done:
        """Execute a call in tau2's environment. Raise ToolError if tau2 returns an error."""
        if self._is_solo and name == DONE.name:
            return Done()
        return self.world.call("assistant", name, arguments)

    async def reply(self, text: str) -> str | Done:
        """Return the customer's answer. A ticket has no customer, so a text ends the episode."""
        if text.strip():
            self.world.say("assistant", text)
        return await self._hear(text) if self.cfg.user else Done()

    @cached_property
    def customer(self) -> Tau2Customer:
        """The customer of this episode."""
        tools, simulator = tools_of_customer(self.cfg.domain), module("user.user_simulator")
        instructions = str(self.task.user_scenario)
        played = simulator.UserSimulator(instructions=instructions, tools=tools or None)
        llm = self.services.llm(self.cfg.user)
        return Tau2ModelCustomer(llm, played.system_prompt, tools, self._call_as_customer)

    def _call_as_customer(self, name: str, arguments: dict[str, Any]) -> str:
        return self.world.call("user", name, arguments)

    async def _hear(self, text: str) -> str | Done:
        """Return the customer's answer, or `Done` if it contains one of tau2's stop marks."""
        said = self.world.say("user", await self.customer.answer(text))
        is_stop = module("user.user_simulator").UserSimulator.is_stop
        return Done() if is_stop(said) else said.content

    def score(self, trajectory: Trajectory) -> float:
        """Return 1 if all criteria of the task's reward are met, as tau2 judges them, otherwise 0.

        An episode that was cut off earns 0.
        """
        parts = self.world.judged()
        self.metrics = {**parts, "tool_errors": float(trajectory.num_tool_errors)}
        if self.cfg.domain in DUAL and self.cfg.user:
            self.metrics["customer_calls"] = float(len(self.world.calls_by("user")))
        return math.prod(parts.values()) * (trajectory.stop_reason in ("env", "agent"))

    async def judge_context(self) -> str:
        """Return the customer's goal, tau2's criteria, and the customer's calls."""
        calls = [f"{c.name}({json.dumps(c.arguments)})" for c in self.world.calls_by("user")]
        called = f"\n\nCalls that the customer made: {', '.join(calls)}" if calls else ""
        return f"{self.task.user_scenario}\n\n{self.task.evaluation_criteria}{called}"

    def gold(self) -> Iterator[str] | None:
        """Return tau2's own calls and the required message, or None if there is a customer."""
        return None if self.cfg.user else self._calls()

    def _calls(self) -> Iterator[str]:
        criteria = self.task.evaluation_criteria
        for action in criteria.actions or ():
            yield _call(action.name, action.arguments)
        last = _call(DONE.name, {}) if self._is_solo else "Done."
        yield "; ".join(criteria.communicate_info or ()) or last

    def _words(self) -> Iterator[str]:
        """Return the turns for a customer who follows instructions: calls, and requests to call."""
        for action in self.task.evaluation_criteria.actions or ():
            how = f" with {json.dumps(action.arguments)}" if action.arguments else ""
            told = f"Please use {action.name}{how}."
            yield told if action.requestor == "user" else _call(action.name, action.arguments)
        yield "That is all. Goodbye."

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return tau2's own calls in train tasks, played as tickets.

        If some calls are the customer's, the episode has a customer who follows instructions.
        """
        is_told = cfg.domain in DUAL and cfg.user is not None
        cfg = cfg if is_told else replace(cfg, user=None)
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            if is_told:
                tools = tools_of_customer(cfg.domain)
                env.customer = Tau2ToldCustomer(env.task.ticket, tools, env._call_as_customer)
            turns = env._words() if is_told else env._calls()
            yield play(env, turns.__next__)


def _call(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"


def _tags(task: str) -> dict[str, str]:
    """Return kind and number of faults of a telecom task, `[kind]fault|fault[PERSONA:name]`."""
    kind, _, faults = task.removeprefix("[").partition("]")
    return {"kind": kind, "level": str(faults.count("|") + 1)}
