"""A shop's order desk: tools under a policy.

One episode, as a perfect assistant plays it:

    user        Please exchange my order W42 for size large.
    assistant   <tool_call>{"name": "get_order", "arguments": {"order_id": "W42"}}</tool_call>
    tool        {"order_id": "W42", ..., "in_stock": ["small"], "status": "delivered"}
    assistant   exchange delivered <tool_call>{"name": "return_order", "arguments": ...}</tool_call>
    tool        {"ok": true}
    assistant   done

The tools do what they are told: keeping to the policy is the assistant's job, and what is learned.
Saying the facts before the decision earns nothing, but puts them where even a very small model sees
them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, ToolError, Trajectory, play, seed_of, tool

Action = Literal["cancel", "return", "exchange"]
Status = Literal["pending", "shipped", "delivered"]
Size = Literal["small", "medium", "large"]

ACTIONS: tuple[Action, ...] = ("cancel", "return", "exchange")
STATUSES: tuple[Status, ...] = ("pending", "shipped", "delivered")
SIZES: tuple[Size, ...] = ("small", "medium", "large")
# "That cannot be done", "it isn't possible to get that done": a refusal whose clause also contains
# "done".
NOT_DONE = re.compile(
    r"\b(?:cannot|not|never|unable|impossible|\w+n't)(?:\s+(?!but\b|only\b)\w+){0,5}\s+done\b"
)
ITEMS = ("mug", "lamp", "shirt", "chair", "book", "phone", "shoes", "bag")


class Order(TypedDict):
    """The order as `get_order` shows it."""

    order_id: str
    item: str
    size: Size
    in_stock: list[Size]  # sizes that the item can be exchanged for
    status: Status


class Request(TypedDict):
    """The customer's request."""

    action: Action
    size: Size | None  # the size wanted in an exchange, otherwise None


def right_action(order: Order, request: Request) -> Action | None:
    """Return the action that the policy prescribes for a request.

    None means: refuse the request and leave the order unchanged.
    """
    action = request["action"]
    if order["status"] != _status_allowing(action):
        return None
    if action == "exchange" and request["size"] not in order["in_stock"]:
        return "return"
    return action


def _status_allowing(action: Action) -> Status:
    return "pending" if action == "cancel" else "delivered"


def draw_case(rng: random.Random) -> tuple[Order, Request]:
    """Return a random order and request; about two thirds of the requests may be granted."""
    action, size = rng.choice(ACTIONS), rng.choice(SIZES)
    allowing = _status_allowing(action)
    others: list[Status] = [s for s in STATUSES if s != allowing]
    status = allowing if rng.random() < 0.67 else rng.choice(others)
    order: Order = {
        "order_id": f"W{rng.randrange(10, 100)}",
        "item": rng.choice(ITEMS),
        "size": size,
        "in_stock": [s for s in SIZES if rng.random() < 0.5],
        "status": status,
    }
    other_sizes: list[Size] = [s for s in SIZES if s != size]
    wanted = rng.choice(other_sizes) if action == "exchange" else None
    return order, {"action": action, "size": wanted}


def split_of(case: str) -> Split:
    """Return the split of a case, computed from its content, so that no case is in two splits."""
    bucket = seed_of(case) % 10
    return "val" if bucket == 0 else "test" if bucket == 1 else "train"


class OrderDesk(Env):
    """Tools under a policy: look an order up, then cancel, return, exchange or refuse."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        # Share of a demonstration's decisions that are guesses. Demonstrations are imperfect on
        # purpose: SFT on them teaches the format, the tool calls and what to look up, and leaves
        # the policy to be learned from the reward.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.6

    system = (
        "You are a shop assistant. Look the order up first. Only pending orders can be cancelled; "
        "only delivered orders can be returned or exchanged; without stock an exchange becomes a "
        "return. Refuse anything else. Say what is asked and the status before you decide. "
        "End with one word: done or sorry."
    )
    max_turns = 5  # three are enough; two more allow a recovery from a mistake

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.order: Order = scenario.data["order"]
        self.request: Request = scenario.data["request"]
        self.looked_up = False
        self.action: Action | None = None  # the action taken on the order
        self.answer: str | None = None

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return distinct cases. All splits filter the same stream of random cases."""
        rng = random.Random(0)
        encode = json.JSONEncoder(sort_keys=True).encode
        seen: set[str] = set()
        while len(seen) < cls.num_scenarios[split]:
            order, request = draw_case(rng)
            case = encode([order, request])
            if case in seen or split_of(case) != split:
                continue
            data = {"order": order, "request": request}
            yield Scenario(id=f"{split}-{len(seen)}", split=split, seed=seed_of(case), data=data)
            seen.add(case)

    async def start(self) -> str:
        """Return the customer's request."""
        size = self.request["size"]
        wish = f" for size {size}" if size else ""
        return f"Please {self.request['action']} my order {self.order['order_id']}{wish}."

    @tool()
    async def get_order(self, order_id: str) -> str:
        """Look an order up."""
        self._check_id(order_id)
        self.looked_up = True
        return json.dumps(self.order)

    @tool(writes=True)
    async def cancel_order(self, order_id: str) -> str:
        """Cancel an order."""
        return self._write("cancel", order_id)

    @tool(writes=True)
    async def return_order(self, order_id: str) -> str:
        """Return an order."""
        return self._write("return", order_id)

    @tool(writes=True)
    async def exchange_order(self, order_id: str, size: Size) -> str:
        """Exchange an order."""
        if size != self.request["size"]:
            raise ToolError("the customer did not ask for this size")
        return self._write("exchange", order_id)

    def _write(self, action: Action, order_id: str) -> str:
        self._check_id(order_id)
        if self.action is not None:
            raise ToolError("the order was already changed")
        self.action = action
        return json.dumps({"ok": True})

    def _check_id(self, order_id: str) -> None:
        if order_id != self.order["order_id"]:
            raise ToolError("no such order")

    async def reply(self, text: str) -> Done:
        """End the episode: a text without a tool call is the answer to the customer."""
        said = text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        words = re.findall(r"[\w']+", NOT_DONE.sub("sorry", said))
        if "sorry" in words:  # "sorry" together with "done" counts as neither
            self.answer = "" if "done" in words else "sorry"
        else:
            self.answer = words[-1] if words else ""
        return Done()

    async def score(self, trajectory: Trajectory) -> float:
        """Return 0.1 for looking, 0.6 for the right action, or rightly none, and 0.3 for the right
        answer.

        Each of the first two bad calls costs 0.1. The reward is 0 without a look or without an
        answer.
        """
        right = right_action(self.order, self.request)
        acted_right = self.looked_up and self.action == right
        answered_right = acted_right and self.answer == ("done" if right else "sorry")
        num_errors = trajectory.num_tool_errors
        self.metrics = {
            "success": float(answered_right and num_errors == 0),
            "looked_up": float(self.looked_up),
            "refused": float(self.answer == "sorry" and self.action is None),
            "tool_errors": float(num_errors),
        }
        if self.answer is None or not self.looked_up:
            return 0.0
        return 0.1 + 0.6 * acted_right + 0.3 * answered_right - 0.1 * min(num_errors, 2)

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Episodes of an assistant that knows the tools but often guesses what to do."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            yield play(env, env._assistant(cfg.demo_noise).__next__)

    def gold(self) -> Iterator[str]:
        """Return the turns of an assistant that always follows the policy."""
        return self._assistant(noise=0.0)

    def _assistant(self, noise: float) -> Iterator[str]:
        rng = self.rng  # the task itself draws nothing from it
        order_id, size = self.order["order_id"], self.request["size"]
        yield _call("get_order", order_id=order_id)
        action = right_action(self.order, self.request)
        if rng.random() < noise:
            guesses = [a for a in ACTIONS if a != "exchange" or size]
            action = rng.choice([None, *guesses])
        facts = f"{self.request['action']} {self.order['status']}"
        if action == "exchange":
            yield f"{facts} {_call('exchange_order', order_id=order_id, size=size)}"
        elif action:
            yield f"{facts} {_call(f'{action}_order', order_id=order_id)}"
        answer = "done" if action else "sorry"
        answer = rng.choice(["done", "sorry"]) if rng.random() < noise else answer
        yield answer if action else f"{facts} {answer}"


def _call(name: str, **arguments: Any) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"
