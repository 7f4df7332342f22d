"""The state that an episode's calls change: a company's database and, in telecom, a customer's
phone.
"""

from __future__ import annotations

import copy
import threading
from functools import cached_property, lru_cache
from typing import Any, Literal

from art_cli import Tool, ToolError
from art_envs.adapters.evaluated import is_plain
from art_envs.adapters.tau2_library import environment_of, message, module, tasks_of

By = Literal["assistant", "user"]

KINDS: dict[By, str] = {"assistant": "AssistantMessage", "user": "UserMessage"}
DUAL = {"telecom"}  # domains whose customer has tools
DONE = Tool(
    name="done",
    description="Call this function when you are done with the task.",
    parameters={"type": "object", "properties": {}},
)


class Tau2World:
    """One episode's environment of tau2, with all of its messages and calls."""

    def __init__(self, domain: str, tasks: str, task: Any, *, solo: bool) -> None:
        """With `solo`, the agent also has the customer's tools, as in tau2's solo mode."""
        self.task = task
        self.said: list[Any] = []  # tau2's messages, for its scorers
        self._domain = domain
        self._tasks = tasks
        self._solo = solo
        self._owns_db = domain in DUAL
        self._lock = threading.Lock()  # the calls of a turn run concurrently

    @cached_property
    def desk(self) -> Any:
        """tau2's environment: in telecom, one for each episode, with the task's faults.

        In other domains it uses the shared database until the first write.
        """
        if self._domain not in DUAL:
            return environment_of(self._domain).get_environment(_untouched(self._domain).tools.db)
        desk = environment_of(self._domain).get_environment()
        desk.solo_mode = self._solo  # setting this rebuilds all tools, which takes 0.1 s
        phone = desk.user_tools  # tau2 breaks a VPN by writing to an object that all phones share
        phone.default_vpn_details = phone.default_vpn_details.model_copy()
        state = self.task.initial_state
        desk.set_state(state.initialization_data, state.initialization_actions, [])
        return desk

    @property
    def policy(self) -> str:
        """tau2's instructions for the agent."""
        return _untouched(self._domain, self._solo).get_policy()

    def say(self, by: By, text: str) -> Any:
        """Record a message of the agent or the customer, and return it in tau2's form."""
        self.said.append(message(KINDS[by], role=by, content=text))
        return self.said[-1]

    def call(self, by: By, name: str, arguments: dict[str, Any]) -> str:
        """Execute a call in tau2's environment. Raise ToolError if tau2 returns an error."""
        _refuse_endless(name, arguments)
        with self._lock:
            if not self._owns_db and name in writes_of(self._domain):
                self.desk.tools.db = copy.deepcopy(self.desk.tools.db)
                self._owns_db = True
            asked = {"name": name, "arguments": arguments, "requestor": by}
            call = message("ToolCall", id=str(len(self.said)), **asked)
            answer = self.desk.get_response(call)
            if self._domain in DUAL:
                _number_bills(self.desk.tools.db)
            self.said += [message(KINDS[by], role=by, tool_calls=[call]), answer]
        if answer.error:
            raise ToolError(str(answer.content).removeprefix("Error: "))
        return str(answer.content)

    def calls_by(self, by: By) -> list[Any]:
        """Return the calls of the agent or of the customer."""
        return [call for m in self.said if m.role == by for call in m.tool_calls or ()]

    def judged(self) -> dict[str, float]:
        """Return tau2's result, 0 or 1, for each criterion of the task's reward."""
        parts = {
            "DB": ("database", self._is_database_right),
            "COMMUNICATE": ("communicated", self._is_all_said),
            "ENV_ASSERTION": ("assertions", self._is_all_asserted),
            "ACTION": ("actions", self._is_all_called),
        }
        basis = {each.value for each in self.task.evaluation_criteria.reward_basis}
        return {name: float(judge()) for key, (name, judge) in parts.items() if key in basis}

    def _is_database_right(self) -> bool:
        found = self.desk.get_db_hash() if self._owns_db else _digest(self._domain)
        return found == _expected(self._domain, self._tasks, self.task.id)

    def _is_all_said(self) -> float:
        evaluator = module("evaluator.evaluator_communicate").CommunicateEvaluator
        return evaluator.calculate_reward(self.task, self.said).reward

    def _is_all_called(self) -> float:
        evaluator = module("evaluator.evaluator_action").ActionEvaluator
        return evaluator.calculate_reward(self.task, self.said).reward

    def _is_all_asserted(self) -> bool:
        """Return whether all assertions hold. An assertion that raises an error does not hold."""
        try:
            self.desk.sync_tools()
            return all(
                self.desk.run_env_assertion(each, raise_assertion_error=False)
                for each in self.task.evaluation_criteria.env_assertions or ()
            )
        except Exception:
            return False


@lru_cache(maxsize=8)
def tools_of_desk(domain: str, *, solo: bool) -> list[Tool]:
    """Return the agent's tools. With `solo`, add the customer's tools and one that ends the
    episode.
    """
    desk = _untouched(domain)
    found = [_tool(desk.tools, tool) for tool in desk.get_tools()]
    if solo:
        found += [*(_tool(desk.user_tools, tool) for tool in desk.get_user_tools()), DONE]
    return found


@lru_cache(maxsize=8)
def tools_of_customer(domain: str) -> list[dict[str, Any]]:
    """Return the schemas of the customer's tools, empty in most domains."""
    tools = _untouched(domain).get_user_tools() if domain in DUAL else ()
    return [tool.openai_schema for tool in tools]


def _tool(kit: Any, tool: Any) -> Tool:
    schema = tool.openai_schema["function"]
    return Tool(
        name=tool.name,
        description=schema["description"],
        parameters=schema["parameters"],
        writes=kit.tool_type(tool.name).value == "write",
    )


@lru_cache(maxsize=8)
def writes_of(domain: str) -> frozenset[str]:
    """Return the names of the tools that write to the database."""
    return frozenset(tool.name for tool in tools_of_desk(domain, solo=False) if tool.writes)


@lru_cache(maxsize=8)
def _untouched(domain: str, solo: bool = False) -> Any:
    """Return the shared environment in its initial state. An episode that writes copies the
    database.
    """
    return environment_of(domain).get_environment(solo_mode=solo)


@lru_cache(maxsize=8)
def _digest(domain: str) -> str:
    """Return the digest of the initial database."""
    return _untouched(domain).get_db_hash()


@lru_cache(maxsize=1024)
def _expected(domain: str, tasks: str, task: str) -> str:
    """Return the digest of the database after tau2's own calls. A failing call changes nothing."""
    actions = tasks_of(domain, tasks)[task].evaluation_criteria.actions or []
    if not any(action.name in writes_of(domain) for action in actions):
        return _digest(domain)
    desk = environment_of(domain).get_environment(copy.deepcopy(_untouched(domain).tools.db))
    for action in actions:
        desk.get_response(message("ToolCall", name=action.name, arguments=action.arguments))
    return desk.get_db_hash()


def _number_bills(db: Any) -> None:
    """Rename bills whose names tau2 draws at random, so that equal calls give equal answers."""
    for number, bill in enumerate(db.bills):
        if len(bill.bill_id) == len("B") + 8:  # a random name from a uuid; other names are shorter
            name, bill.bill_id = bill.bill_id, f"B9{number:03}"
            for customer in db.customers:
                customer.bill_ids = [bill.bill_id if b == name else b for b in customer.bill_ids]


def _refuse_endless(name: str, arguments: dict[str, Any]) -> None:
    """Raise ToolError for a power that never ends, because `calculate` evaluates its argument."""
    if name == "calculate" and isinstance(text := arguments.get("expression"), str):
        try:
            is_ending = is_plain(text)
        except SyntaxError:
            return
        if not is_ending:
            raise ToolError("Invalid expression")
