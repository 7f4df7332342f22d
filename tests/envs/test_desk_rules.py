"""What a single write, yes or look-up costs and counts for at a desk."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from art_cli.envs.base import ToolError
from art_cli.rollout.rollout import play_episode
from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.retail.wishes import BAD_REASONS, OTHER_TOOL
from art_envs.service.desk import ServiceDesk
from art_envs.service.episode import TICKET
from art_envs.service.gates import finished
from art_envs.service.goal import DONE, Action, call, confirm, ever_wanted

RETAIL = RetailDesk.Config(level=2)
HARD = RetailDesk.Config(level=4)
AIRLINE = AirlineDesk.Config(level=3)


def first(env: type[ServiceDesk], cfg: Any, **goal: Any) -> ServiceDesk:
    """An episode whose goal has these values."""
    scenarios = env.scenarios(cfg, "train")
    return env(next(s for s in scenarios if goal.items() <= s.data["goal"].items()), cfg)


def played(desk: ServiceDesk, *turns: str | Action | list[Action]) -> float | None:
    """What these turns earn; calls in a list are made in one turn."""
    texts = []
    for turn in turns:
        calls = [turn] if isinstance(turn, dict) else turn if isinstance(turn, list) else []
        made = " ".join(f"<tool_call>{json.dumps(c)}</tool_call>" for c in calls)
        texts.append(turn if isinstance(turn, str) else made)
    return play_episode(desk, iter([*texts, *[DONE] * 60]).__next__).reward


def refused(cfg: Any = RETAIL) -> tuple[ServiceDesk, Action]:
    """An episode about a write that the shop's tools refuse for the order's status."""
    for scenario in RetailDesk.scenarios(cfg, "train"):
        [want, *_] = scenario.data["goal"]["wants"]
        if scenario.data["kind"] == "refused" and want["reasons"] == ["status"]:
            return RetailDesk(scenario, cfg), want["write"]
    raise AssertionError


@pytest.mark.parametrize("cfg", [RETAIL, RetailDesk.Config(level=0, size="small")])
def test_a_write_that_the_policy_forbids_fails_the_episode_though_the_tool_refuses_it(
    cfg: Any,
) -> None:
    desk, write = refused(cfg)
    *looked, no = [s for s in desk.goal["script"] if s != DONE]
    assert played(desk, *looked, *[confirm(write)] * bool(cfg.level), write, no) == 0
    assert desk.metrics["fault_refused_write"] == 1
    desk, _ = refused(cfg)
    assert played(desk, *looked, no) == 1


@pytest.mark.parametrize(
    "slip", [{"order_id": "#W0"}, {"payment_id": "visa"}, {"item_ids": ["0"]}, {"item_ids": []}]
)
def test_a_slip_that_a_tool_refuses_costs_nothing(slip: dict[str, Any]) -> None:
    for scenario in RetailDesk.scenarios(RETAIL, "train"):
        write = scenario.data["goal"]["wants"][0]["write"]
        if scenario.data["kind"] == "one" and write and write["name"] == "return_items":
            wrong = call("return_items", **write["arguments"] | slip)
            desk = RetailDesk(scenario, RETAIL)
            at = desk.goal["script"].index(write)
            assert played(desk, *desk.goal["script"][:at], wrong, *desk.goal["script"][at:]) == 1
            return
    raise AssertionError


def test_a_reason_that_the_policy_lacks_fails_the_episode_and_a_spelling_does_not() -> None:
    desk = first(RetailDesk, RETAIL, kind="one")
    order_id = next(
        id
        for id in desk.store.peek("users", desk.goal["user_id"])["orders"]
        if desk.store.peek("orders", id)["status"] in ("pending", "delivered")
    )
    desk.store.edit("orders", order_id)["status"] = "pending"
    with pytest.raises(ToolError, match="is no reason"):
        finished(desk.act(call("cancel_order", order_id=order_id, reason=BAD_REASONS[0])))
    assert desk.faults == {"refused_write": 1}
    finished(desk.act(call("cancel_order", order_id=order_id, reason="Ordered_by mistake.")))
    assert desk.store.peek("orders", order_id)["cancel_reason"] == "ordered by mistake"


def test_an_impossible_write_of_the_airline_counts_where_a_rule_forbids_it_too() -> None:
    num = 0
    for scenario in AirlineDesk.scenarios(AIRLINE, "train"):
        write = scenario.data["goal"]["wants"][0]["write"]
        desk = AirlineDesk(scenario, AIRLINE)
        try:
            finished(desk.act(write or call("calculate", expression="1")))
        except ToolError:
            num += 1
            assert desk.faults["refused_write"] == 1
    assert num > 5
    desk = first(AirlineDesk, AIRLINE, kind="one")
    with pytest.raises(ToolError):
        finished(desk.act(call("cancel", reservation_id="R?", reason="plans")))
    assert not desk.faults


@pytest.mark.parametrize("flight", [None, ("F?", "2025-06-18"), ("", "18 June"), ("", "")])
def test_flights_that_do_not_exist_are_a_slip(
    flight: tuple[str, str] | None,
) -> None:
    desk = first(AirlineDesk, AIRLINE, kind="one")
    key = desk.store.peek("users", desk.goal["user_id"])["reservations"][0]
    number = desk.store.peek("reservations", key)["flights"][0]["flight"]
    flights = [{"flight": flight[0] or number, "date": flight[1]}] if flight else []
    asked = {"reservation_id": key, "cabin": "economy", "flights": flights, "payment_id": "card"}
    with pytest.raises(ToolError):
        finished(desk.act(call("change_flights", **asked)))
    assert not desk.faults


def granted() -> tuple[ServiceDesk, int]:
    """An episode with one write, and where its confirm stands in the right conversation."""
    desk = first(RetailDesk, RETAIL, kind="one")
    names = ["" if isinstance(s, str) else s["name"] for s in desk.goal["script"]]
    return desk, names.index("confirm")


def test_a_yes_must_have_been_given_in_an_earlier_turn() -> None:
    desk, at = granted()
    looked: list[Any] = desk.goal["script"][:at]
    asked: Any = desk.goal["script"][at]
    write: Any = desk.goal["script"][at + 1]
    assert played(desk, *looked, [asked, write]) == 0
    assert desk.metrics["fault_unconfirmed"] == 1
    desk, _ = granted()
    again = [call("calculate", expression="1"), asked]
    assert played(desk, *looked, again, asked, write) == 1


@pytest.mark.parametrize(
    ("cfg", "turned", "earned"),
    [
        (RETAIL, ("item_ids",), 1),
        pytest.param(HARD, ("item_ids", "new_item_ids"), 1, marks=pytest.mark.slow),
        pytest.param(HARD, ("item_ids",), 0, marks=pytest.mark.slow),  # other pairs
    ],
)
def test_a_yes_to_a_b_is_a_yes_to_b_a(cfg: Any, turned: tuple[str, ...], earned: float) -> None:
    """Items and the new ones in their place are pairs; nothing else about their order counts."""
    name = "return_items" if cfg is RETAIL else "exchange_items"
    for scenario in RetailDesk.scenarios(cfg, "train"):
        script = scenario.data["goal"]["script"]
        found = [s for s in script if isinstance(s, dict) and s["name"] == name]
        if scenario.data["kind"] == "one" and found and len(found[0]["arguments"]["item_ids"]) > 1:
            [write], arguments = found, found[0]["arguments"]
            other = call(name, **arguments | {key: arguments[key][::-1] for key in turned})
            turns = [other if step == write else step for step in script]
            assert played(RetailDesk(scenario, cfg), *turns) == earned
            return
    raise AssertionError


def test_a_ticket_says_that_words_close_it() -> None:
    cfg = RetailDesk.Config(level=0, size="small")
    assert TICKET in asyncio.run(first(RetailDesk, cfg).start())[0]["content"]
    assert TICKET not in asyncio.run(first(RetailDesk, RETAIL).start())[0]["content"]


def test_no_refusal_is_doubtful() -> None:
    """Where another tool does what the customer asks for, nothing is to be refused."""
    tools = {"modify_order_items": "modify", "exchange_items": "exchange", "return_items": "return"}
    orders = RetailDesk.database(RETAIL)["orders"]
    num = 0
    for goal in RetailDesk.goals(RETAIL)["train"]:
        for want in ever_wanted(goal):
            write = want["write"]
            if write and "status" in want["reasons"] and write["name"] in tools:
                num += 1
                status = orders[write["arguments"]["order_id"]]["status"]
                assert status != OTHER_TOOL[tools[write["name"]]]  # type: ignore[index]
    assert num > 10
    assert not any("cheaper" in reason for reason in BAD_REASONS)
