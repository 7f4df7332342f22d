"""Customers who want something else as soon as they are asked to confirm what they wanted."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from art_cli.types import Scenario
from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.retail.dual import DualDesk
from art_envs.service.desk import ServiceDesk
from art_envs.service.gates import GateError, check
from art_envs.service.goal import Goal, Want, call, confirm, ever_wanted, minds, settled_by, want
from art_envs.service.user import LLMUser
from scripts.bench.desk_players import DEAF, HONEST, reward

DESKS: dict[str, type[ServiceDesk]] = {
    "retail": RetailDesk,
    "airline": AirlineDesk,
    "retail_dual": DualDesk,
}
# What other tests of this folder generate anyway is fast.
CASES = [
    pytest.param(name, level, marks=() if (name, level) == ("airline", 3) else pytest.mark.slow)
    for name in DESKS
    for level in (3, 4)
]
ENDS = {
    "retail": {"changed", "back", "refused", "refused, back", "kept"},
    "airline": {"changed", "back", "refused", "refused, back", "kept"},
    "retail_dual": {"changed", "back", "refused, back"},
}


def episodes(name: str, level: int) -> Iterator[ServiceDesk]:
    """All episodes of a desk."""
    env: Any = DESKS[name]
    cfg = env.Config(level=level)
    for split in ("val", "test", "train"):
        yield from (env(scenario, cfg) for scenario in env.scenarios(cfg, split))


def of_two_minds(name: str, level: int, num: int) -> list[ServiceDesk]:
    """Some episodes of customers who change their mind."""
    found = (desk for desk in episodes(name, level) if minds(desk.goal))
    return [desk for desk, _ in zip(found, range(num), strict=False)]


def wants_a_change(goal: Goal) -> bool:
    return any(w["write"] and w["write"]["name"] != "transfer" for w in ever_wanted(goal))


def end(first: Want) -> str:
    """What becomes of a change that a customer thinks better of."""
    then = first["rather"]
    assert then
    if then["reasons"]:
        return "refused, back" if then["otherwise"] else "refused"
    if not then["write"]:
        return "kept"
    return "back" if then["rather"] else "changed"


@pytest.mark.parametrize(("name", "level"), CASES)
def test_a_quarter_to_a_third_change_their_mind_in_all_ways(name: str, level: int) -> None:
    goals = [desk.goal for desk in episodes(name, level)]
    share = sum(bool(minds(goal)) for goal in goals) / sum(map(wants_a_change, goals))
    assert 0.25 <= share <= 1 / 3
    ends = Counter(end(first) for goal in goals for first in goal["wants"] if first["rather"])
    assert ends.keys() == ENDS[name]
    assert min(ends.values()) >= 6


def test_below_level_3_nobody_does() -> None:
    assert not any(minds(desk.goal) for desk in episodes("retail", 2))


@pytest.mark.parametrize("name", ["airline", pytest.param("retail", marks=pytest.mark.slow)])
def test_anything_about_a_change_may_be_otherwise(name: str) -> None:
    """Which arguments differ between what is wanted first and what is wanted in its place."""
    differ: set[str] = set()
    tools: set[bool] = set()
    for desk in episodes(name, 3):
        for first in minds(desk.goal):
            one, two = first["write"], first["rather"] and first["rather"]["write"]
            if one and two:
                tools.add(one["name"] == two["name"])
                if one["name"] == two["name"]:
                    differ |= {k for k, v in one["arguments"].items() if two["arguments"][k] != v}
    assert tools == {True, False}
    assert (
        differ
        >= {
            "retail": {"item_ids", "new_item_ids", "payment_id", "street", "zip"},
            "airline": {"flights", "cabin", "bags", "passengers", "payment_id"},
        }[name]
    )


@pytest.mark.parametrize(("name", "level"), CASES)
def test_who_goes_on_with_what_was_wanted_first_earns_nothing(name: str, level: int) -> None:
    for desk in of_two_minds(name, level, 40):
        for rule, player in DEAF.items():
            assert reward(desk, player(desk)) == 0, rule
            desk = type(desk)(desk.scenario, desk.cfg)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_every_honest_wording_earns_everything(name: str, level: int) -> None:
    for desk in of_two_minds(name, level, 25):
        for rule, player in HONEST.items():
            assert reward(desk, player(desk)) == 1, (rule, desk.scenario.id)
            desk = type(desk)(desk.scenario, desk.cfg)


@pytest.mark.parametrize(("name", "level"), CASES)
def test_what_comes_to_nothing_is_never_the_last_wish(name: str, level: int) -> None:
    """Else one would earn who looks everything up, asks for a yes, and leaves it at that."""
    for desk in episodes(name, level):
        *_, last = settled_by(desk.goal)
        assert last["write"] or last["outputs"]
        if any(end(first) == "kept" for first in minds(desk.goal)):
            assert desk.gold_writes()


def broken(desk: ServiceDesk, first: Want) -> Iterator[tuple[str, Scenario]]:
    """Scenarios like this one that a wrong generator would make."""
    assert first["write"]
    at = desk.goal["script"].index(confirm(first["write"]))
    for what in ("agrees at once", "the same again", "made though dropped"):
        data: Any = copy.deepcopy(desk.scenario.data)
        goal = data["goal"]
        changed = next(w for w in ever_wanted(goal) if w["words"] == first["words"])
        if what == "agrees at once":
            changed["rather"] = None
        elif what == "the same again":
            changed["rather"] = {**first, "rather": None}
        else:
            goal["script"].insert(at + 1, first["write"])
        yield what, Scenario(id=what, split="train", seed=0, data=data)


def test_the_gates_see_what_a_changed_mind_makes_wrong() -> None:
    [desk] = of_two_minds("airline", 3, 1)
    check(type(desk), desk.cfg, desk.scenario)
    for _, scenario in broken(desk, minds(desk.goal)[0]):
        with pytest.raises(GateError):
            check(type(desk), desk.cfg, scenario)


def test_a_language_model_is_told_when_to_change_its_mind() -> None:
    [desk] = of_two_minds("airline", 3, 1)
    user = LLMUser(desk.goal, desk.slots, None)  # type: ignore[arg-type]
    [prompt] = [m["content"] for m in user._messages if m["role"] == "system"]
    for first in minds(desk.goal):
        assert first["rather"]
        asked = f"When you are asked to confirm this: {first['words']}\nsay no"
        assert asked in prompt
        assert first["rather"]["words"] in prompt[prompt.index(asked) :]


def test_what_was_wanted_first_may_be_confirmed_again_only_once_it_is_wanted_again() -> None:
    """The customer comes back to it: then it is right, and before that it is not."""
    found = (d for d in episodes("airline", 3) for w in minds(d.goal) if end(w) == "refused, back")
    desk = next(found)
    [first] = minds(desk.goal)
    write = first["write"]
    assert write
    script = desk.goal["script"]
    no = next(s for s in script if not isinstance(s, str) and s["name"] == "refuse")
    at = script.index(no)
    hasty = [*script[:at], confirm(write), write, *script[at:]]
    assert reward(desk, iter(hasty)) == 0
    desk = type(desk)(desk.scenario, desk.cfg)
    assert reward(desk, iter(script)) == 1
    assert [made for made in desk.done if made == write] == [write]


def test_what_is_settled_is_what_is_wanted_last() -> None:
    last = want("C", call("c"))
    refused: Want = {**want("B", call("b")), "reasons": ["status"], "otherwise": last}
    first: Want = {**want("A", call("a")), "rather": refused}
    goal: Any = {"wants": [first]}
    assert list(settled_by(goal)) == [last]
    assert minds(goal) == [first]
    refused["otherwise"] = None
    assert list(settled_by(goal)) == [refused]
