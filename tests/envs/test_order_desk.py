"""The order desk: its policy, its rewards, and that its splits do not overlap."""

import itertools
import json
import random
from collections.abc import Iterable

import pytest

from art_cli.rollout.rollout import play, play_episode
from art_cli.types import Scenario
from art_envs.order_desk import ITEMS, OrderDesk, right_action

CFG = OrderDesk.Config()
GOLD = OrderDesk.Config(demo_noise=0.0)
LOOK = '<tool_call>{"name": "get_order", "arguments": {"order_id": "W42"}}</tool_call>'
CANCEL = LOOK.replace("get_order", "cancel_order")
RETURN = LOOK.replace("get_order", "return_order")
EXCHANGE = (
    '<tool_call>{"name": "exchange_order", "arguments": {"order_id": "W42", "size": "large"}}'
    "</tool_call>"
)


def desk(action: str, status: str, in_stock: Iterable[str] = ()) -> OrderDesk:
    """An episode about order W42."""
    order = {"order_id": "W42", "status": status, "item": "mug", "size": "small"}
    request = {"action": action, "size": "large" if action == "exchange" else None}
    data = {"order": {**order, "in_stock": list(in_stock)}, "request": request}
    return OrderDesk(Scenario(id="x", split="train", seed=0, data=data), CFG)


def reward(env: OrderDesk, turns: Iterable[str]) -> float:
    """The reward when the assistant says `turns`."""
    earned = play_episode(env, iter(turns).__next__).reward
    assert earned is not None
    return earned


def mean_reward(turns: Iterable[str]) -> float:
    """Of an assistant that says the same, but for the order's number, in many episodes."""
    rewards = []
    for scenario in itertools.islice(OrderDesk.scenarios(CFG, "train"), 150):
        order_id = scenario.data["order"]["order_id"]
        said = [turn.replace("W42", order_id) for turn in turns]
        rewards.append(reward(OrderDesk(scenario, CFG), said))
    return sum(rewards) / len(rewards)


@pytest.mark.parametrize("in_stock", [[], ["large"], ["medium"], ["medium", "large"]])
@pytest.mark.parametrize("status", ["pending", "shipped", "delivered"])
@pytest.mark.parametrize("action", ["cancel", "return", "exchange"])
def test_policy(action: str, status: str, in_stock: list[str]) -> None:
    env = desk(action, status, in_stock)
    expected = {
        ("cancel", "pending"): "cancel",
        ("return", "delivered"): "return",
        ("exchange", "delivered"): "exchange" if "large" in in_stock else "return",
    }
    assert right_action(env.order, env.request) == expected.get((action, status))


@pytest.mark.parametrize(
    ("env", "turns", "expected"),
    [
        (desk("cancel", "pending"), [LOOK, CANCEL, "done"], 1.0),
        (desk("cancel", "pending"), [LOOK, CANCEL, " Done.\n"], 1.0),
        (desk("cancel", "shipped"), [LOOK, "sorry"], 1.0),
        (desk("cancel", "shipped"), [LOOK, "Sorry, that cannot be done."], 1.0),
        (desk("cancel", "shipped"), [LOOK, "Sorry, it isn't possible to get this done."], 1.0),
        (desk("cancel", "shipped"), [LOOK, "I'm sorry, this order was shipped."], 1.0),
        (desk("cancel", "pending"), [LOOK, CANCEL, "Sorry, that cannot be done."], 0.7),
        (
            desk("cancel", "pending"),
            [LOOK, CANCEL, "Your order is cancelled: done."],
            1.0,
        ),
        (desk("exchange", "delivered", ["large"]), [LOOK, EXCHANGE, "done"], 1.0),
        (desk("exchange", "delivered"), [LOOK, RETURN, "done"], 1.0),
        (desk("cancel", "pending"), [LOOK, CANCEL, "sorry"], 0.7),
        (desk("cancel", "shipped"), [LOOK, "done"], 0.7),
        (desk("cancel", "pending"), [LOOK, "sorry"], 0.1),
        (desk("cancel", "pending"), [LOOK, "done"], 0.1),
        (desk("cancel", "shipped"), [LOOK, CANCEL, "done"], 0.1),
        (desk("cancel", "pending"), [CANCEL, "done"], 0.0),
        (desk("cancel", "shipped"), ["sorry"], 0.0),
        (desk("cancel", "pending"), [LOOK, CANCEL, LOOK, LOOK, LOOK], 0.0),
    ],
)
def test_reward_of_an_episode(env: OrderDesk, turns: list[str], expected: float) -> None:
    assert reward(env, turns) == pytest.approx(expected)


@pytest.mark.parametrize(
    "bad_call",
    [
        CANCEL.replace("W42", "W43"),
        CANCEL.replace("order_id", "id"),
        CANCEL.replace("cancel_order", "refund"),
        EXCHANGE.replace("large", "medium"),
        EXCHANGE.replace("large", "huge"),
        "<tool_call>cancel it</tool_call>",
    ],
)
def test_a_bad_call_costs_a_tenth_and_leaves_the_order_alone(bad_call: str) -> None:
    env = desk("cancel", "pending")
    assert reward(env, [LOOK, bad_call, CANCEL, "done"]) == pytest.approx(0.9)
    assert env.metrics["tool_errors"] == 1
    assert env.metrics["success"] == 0


def test_no_more_than_two_bad_calls_cost() -> None:
    turns = [LOOK, CANCEL, RETURN, EXCHANGE + RETURN, "done"]
    assert reward(desk("cancel", "pending"), turns) == pytest.approx(0.8)


def test_the_order_is_changed_once() -> None:
    env = desk("cancel", "pending")
    assert reward(env, [LOOK, RETURN, CANCEL, "done"]) == pytest.approx(0.0)
    assert env.action == "return"


def test_metrics_of_a_right_refusal() -> None:
    env = desk("return", "shipped")
    reward(env, [LOOK, "sorry"])
    assert env.metrics == {"success": 1, "looked_up": 1, "refused": 1, "tool_errors": 0}


def test_what_the_model_reads() -> None:
    env = desk("exchange", "delivered", ["large"])
    messages = play(env, iter([LOOK, EXCHANGE, "done"]).__next__)
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert messages[1]["content"] == "Please exchange my order W42 for size large."
    assert json.loads(messages[3]["content"]) == env.order
    assert messages[5]["content"] == '{"ok": true}'


def test_habits_earn_little() -> None:
    assert mean_reward(["sorry"]) == 0
    assert mean_reward([LOOK, "done"]) < 0.4
    assert mean_reward([LOOK, "sorry"]) < 0.5
    assert mean_reward([LOOK, LOOK, LOOK, LOOK, LOOK]) == 0
    assert mean_reward([LOOK, CANCEL, "done"]) < 0.5
    assert mean_reward([LOOK, CANCEL + RETURN, "done"]) < 0.4
    assert mean_reward([LOOK, "done sorry"]) < mean_reward([LOOK, "sorry"])
    assert mean_reward([LOOK, "sorry, but it is done"]) < mean_reward([LOOK, "sorry"])


def test_random_writes_earn_little() -> None:
    rng = random.Random(0)
    writes = [[], [CANCEL], [RETURN], [EXCHANGE]]
    means = [
        mean_reward([LOOK, *rng.choice(writes), rng.choice(["done", "sorry"])]) for _ in range(8)
    ]
    assert max(means) < 0.5


def test_gold_demonstrations_earn_everything() -> None:
    assert demonstrated_rewards(GOLD, 300) == pytest.approx([1.0] * 300)


def test_default_demonstrations_are_about_half_right() -> None:
    rewards = demonstrated_rewards(CFG, 300)
    assert 0.45 < sum(rewards) / len(rewards) < 0.65


def demonstrated_rewards(cfg: OrderDesk.Config, num: int) -> list[float]:
    """Plays the demonstrated turns again; the conversation must come out the same."""
    rewards = []
    scenarios = OrderDesk.scenarios(cfg, "train")
    for scenario, demonstration in zip(scenarios, OrderDesk.demonstrations(cfg, num), strict=False):
        env = OrderDesk(scenario, cfg)
        rewards.append(
            reward(env, [m["content"] for m in demonstration if m["role"] == "assistant"])
        )
    return rewards


def test_splits_share_no_case() -> None:
    cases = {
        split: [json.dumps(s.data, sort_keys=True) for s in OrderDesk.scenarios(CFG, split)]
        for split in ("train", "val", "test")
    }
    assert {split: len(set(c)) for split, c in cases.items()} == OrderDesk.num_scenarios
    for one, two in itertools.combinations(cases.values(), 2):
        assert not set(one) & set(two)


def test_scenarios_repeat_and_vary() -> None:
    scenarios = list(OrderDesk.scenarios(CFG, "val"))
    assert scenarios == list(OrderDesk.scenarios(CFG, "val"))
    assert {s.data["order"]["item"] for s in scenarios} == set(ITEMS)
    granted = [right_action(s.data["order"], s.data["request"]) is not None for s in scenarios]
    assert 0.6 < sum(granted) / len(granted) < 0.75
