"""A shop whose customers must do things themselves: both worlds, and who earns by them."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from art_cli.config.load import load_experiment
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Done, ToolError
from art_cli.envs.tools import tools_of
from art_cli.errors import UsageError
from art_cli.rollout.rollout import play_episode
from art_envs.retail.desk import RetailDesk
from art_envs.retail.dual import DualDesk
from art_envs.retail.hands import (
    ACCEPT,
    ASKS,
    CHARGE,
    LABEL,
    LOOK,
    PHOTO,
    PHOTO_FROM,
    REASONS,
    RESTART,
    RULES,
    Hands,
    Thing,
    ask_for,
    right_asks,
)
from art_envs.service.gates import finished
from art_envs.service.goal import Action, call

CASES = [
    ("full", 2),
    *(pytest.param(*c, marks=pytest.mark.slow) for c in [("small", 1), ("full", 4)]),
]
SPLITS = ("train", "val", "test")
HASHES = {  # of what is generated. They change with the generator, never with the machine
    ("small", 1): "853c102f284912e2",
    ("full", 2): "fc2f67914beaef69",
    ("full", 4): "b266bb4ed1a22ea9",
}
NUM = 120  # scenarios that a way to play is tried on
VERDICTS = ("replace", "mended", *REASONS)
UNMENDED = ("replace", *REASONS)

Turns = Iterator["str | Action"]


def config(size: str = "full", level: int = 2, **settings: Any) -> DualDesk.Config:
    return DualDesk.Config(size=size, level=level, **settings)  # type: ignore[arg-type]


def desks(
    size: str = "full", level: int = 2, num: int = NUM, verdicts: Collection[str] = VERDICTS
) -> Iterator[DualDesk]:
    """Episodes that come to one of these verdicts, those of held-out customers first."""
    cfg = config(size, level)
    scenarios = (s for split in ("val", "test", "train") for s in DualDesk.scenarios(cfg, split))
    found = (DualDesk(scenario, cfg) for scenario in scenarios)
    yield from itertools.islice((d for d in found if verdict_of(d) in verdicts), num)


def reward(desk: DualDesk, turns: Turns) -> float:
    """What an assistant earns that takes these turns."""
    said = (s if isinstance(s, str) else f"<tool_call>{json.dumps(s)}</tool_call>" for s in turns)
    earned = play_episode(desk, said.__next__).reward
    assert earned is not None
    return earned


def verdict_of(desk: DualDesk) -> str:
    return right_asks(desk.thing)[1]


def steps(desk: DualDesk) -> list[str | Action]:
    """The right conversation."""
    return list(desk.goal["script"])


def name_of(step: str | Action) -> str:
    return "" if isinstance(step, str) else step["name"]


def until_the_asks(desk: DualDesk) -> Turns:
    """Find out who it is and what they ordered."""
    yield from steps(desk)[: desk._decision()]


def after_the_asks(desk: DualDesk) -> Turns:
    """Decide as is right, and serve all other wishes."""
    last = max(i for i, step in enumerate(steps(desk)) if name_of(step) == "ask_customer")
    yield from steps(desk)[last + 1 :]
    yield from itertools.repeat("It is done.")


def replacing(desk: DualDesk) -> Turns:
    """Have the label read and accepted, and replace it."""
    yield from [ask_for(LABEL), ask_for(ACCEPT), ask_for(ACCEPT)]
    write = desk.goal["wants"][0]["write"]
    assert write
    yield call("confirm", action=write["name"], arguments=write["arguments"])
    yield write


# Ways to play that earn nothing.


def idle(desk: DualDesk) -> Turns:
    """Say that all is well."""
    yield from itertools.repeat("It is done.")


def empty(desk: DualDesk) -> Turns:
    """Say nothing."""
    yield from itertools.repeat("")


def asking_everything(desk: DualDesk) -> Turns:
    """Have the customer do all that there is, each until it is done, then decide rightly."""
    yield from until_the_asks(desk)
    for ask in ASKS:
        yield from [ask_for(ask)] * (1 + (ask in desk.thing["slips"]))
    yield from after_the_asks(desk)


def asking_everything_once(desk: DualDesk) -> Turns:
    """Have the customer do all that there is once, what changes nothing last."""
    yield from until_the_asks(desk)
    yield from map(ask_for, (CHARGE, RESTART, ACCEPT, PHOTO, LOOK, LABEL))
    yield from after_the_asks(desk)


def talking(desk: DualDesk) -> Turns:
    """Ask in words alone for what the customer must do."""
    for step in steps(desk):
        if isinstance(step, str) or step["name"] != "ask_customer":
            yield step
        else:
            yield f"Please do this: {step['arguments']['action']}"
    yield from itertools.repeat("It is done.")


def blind(desk: DualDesk) -> Turns:
    """Know what is wrong without a look."""
    yield from (step for step in steps(desk) if step != ask_for(LOOK))
    yield from itertools.repeat("It is done.")


def guessing(desk: DualDesk) -> Turns:
    """Know the number without having the label read."""
    yield from (step for step in steps(desk) if step != ask_for(LABEL))
    yield from itertools.repeat("It is done.")


def trying_both(desk: DualDesk) -> Turns:
    """Have it charged and restarted, whatever the light; then go on rightly."""
    done = False
    for step in steps(desk):
        yield step
        if step == ask_for(LOOK) and not done:
            yield from [ask_for(CHARGE), ask_for(RESTART)]
            done = True
    yield from itertools.repeat("It is done.")


def hedging(desk: DualDesk) -> Turns:
    """Ask rightly, then do both: refuse and replace, the wrong one first."""
    asks, verdict = right_asks(desk.thing)
    yield from until_the_asks(desk)
    yield from map(ask_for, asks)
    no = call("refuse", reason="damage" if verdict == "replace" else verdict)
    yield from [no, *replacing(desk)] if verdict == "replace" else [*replacing(desk), no, no, no]
    yield from itertools.repeat("It is done.")


def unconfirmed(desk: DualDesk) -> Turns:
    """Do the right thing without a yes to it."""
    yield from (step for step in steps(desk) if name_of(step) != "confirm")
    yield from itertools.repeat("It is done.")


def overdoing(desk: DualDesk) -> Turns:
    """Replace what the customer could mend."""
    yield from until_the_asks(desk)
    yield ask_for(LOOK)
    yield from replacing(desk)
    yield from after_the_asks(desk)


def unidentified(desk: DualDesk) -> Turns:
    """Do the right thing for nobody in particular."""
    yield from (s for s in steps(desk) if not name_of(s).startswith(("find_user", "get_user")))
    yield from itertools.repeat("It is done.")


def pestering(desk: DualDesk) -> Turns:
    """Have them look again and again, then go on rightly."""
    yield from until_the_asks(desk)
    yield from [ask_for(LOOK)] * 4
    yield from steps(desk)[desk._decision() + 1 :]
    yield from itertools.repeat("It is done.")


# With the verdicts of the scenarios that they are about.
WORTHLESS: list[tuple[Callable[[DualDesk], Turns], Collection[str]]] = [
    (idle, VERDICTS),
    (empty, VERDICTS),
    (asking_everything, UNMENDED),
    (asking_everything_once, VERDICTS),
    (talking, VERDICTS),
    (blind, VERDICTS),
    (guessing, ("replace",)),
    (trying_both, UNMENDED),
    (hedging, UNMENDED),
    (unconfirmed, ("replace",)),
    (unidentified, VERDICTS),
    (pestering, VERDICTS),
    (overdoing, ("mended",)),
]


@pytest.mark.parametrize(("size", "level"), CASES)
@pytest.mark.parametrize(("way", "verdicts"), WORTHLESS)
def test_it_earns_nothing(
    way: Callable[[DualDesk], Turns], verdicts: Collection[str], size: str, level: int
) -> None:
    earned = [(d.scenario.id, reward(d, way(d))) for d in desks(size, level, verdicts=verdicts)]
    assert len(earned) == NUM
    assert [id for id, r in earned if r] == []


@pytest.mark.parametrize(("size", "level"), CASES)
def test_who_asks_for_everything_in_turn_earns_only_where_the_first_thing_mends_it(
    size: str, level: int
) -> None:
    played = [(d, reward(d, asking_everything(d))) for d in desks(size, level)]
    earned = [d for d, r in played if r]
    assert {right_asks(d.thing)[0][-1] for d in earned} <= {CHARGE}
    assert {verdict_of(d) for d in earned} <= {"mended"}
    assert len(earned) < 0.3 * len(played)


def always_replacing(desk: DualDesk) -> Turns:
    """Look, and replace it without another question."""
    yield from until_the_asks(desk)
    yield from [ask_for(LOOK), ask_for(LABEL)]
    yield from itertools.islice(replacing(desk), 1, None)
    yield from after_the_asks(desk)


def always_refusing(desk: DualDesk) -> Turns:
    """Look, and say that nothing is wrong with it."""
    yield from until_the_asks(desk)
    yield ask_for(LOOK)
    yield from itertools.repeat(call("refuse", reason="works"))


def never_asking_again(desk: DualDesk) -> Turns:
    """Take everything for done that was asked for once."""
    before: list[Any] = []
    for step in steps(desk):
        if name_of(step) != "ask_customer" or step not in before:
            yield step
        before.append(step)
    yield from itertools.repeat("It is done.")


@pytest.mark.parametrize(("size", "level"), CASES)
@pytest.mark.parametrize(
    ("way", "verdict"),
    [(always_replacing, "replace"), (always_refusing, "works")],
)
def test_one_decision_for_all_earns_where_it_is_right(
    way: Callable[[DualDesk], Turns], verdict: str, size: str, level: int
) -> None:
    earned = [(verdict_of(d), reward(d, way(d))) for d in desks(size, level)]
    assert {v for v, r in earned if r} <= {verdict}
    assert sum(r for _, r in earned) < 0.35 * len(earned)


def test_who_takes_a_slip_for_the_thing_itself_earns_nothing_by_it() -> None:
    slips = [desk for desk in desks(num=200) if desk.thing["slips"] not in ([], [LABEL])]
    assert len(slips) > 30
    assert not any(reward(desk, never_asking_again(desk)) for desk in slips)


@pytest.mark.parametrize(("size", "level"), CASES)
def test_the_right_conversation_earns_everything(size: str, level: int) -> None:
    for desk in desks(size, level, num=200):
        assert reward(desk, iter(steps(desk))) == 1
        assert desk.metrics["tool_errors"] == desk.metrics["needless_asks"] == 0


def test_the_gold_player_and_the_demonstrations_earn_everything() -> None:
    cfg = config()
    for desk in desks(num=30):
        assert play_episode(desk, desk.gold().__next__).reward == 1
    scenarios = DualDesk.scenarios(cfg, "train")
    for scenario, messages in zip(scenarios, DualDesk.demonstrations(cfg, 40), strict=False):
        turns = (m["content"] for m in messages if m["role"] == "assistant")
        assert reward(DualDesk(scenario, cfg), turns) == 1


def test_noisy_demonstrations_are_sometimes_wrong() -> None:
    cfg = config(demo_noise=0.9)
    scenarios, rewards = DualDesk.scenarios(cfg, "train"), []
    for scenario, messages in zip(scenarios, DualDesk.demonstrations(cfg, 100), strict=False):
        turns = (m["content"] for m in messages if m["role"] == "assistant")
        rewards.append(reward(DualDesk(scenario, cfg), turns))
    assert 0.1 < sum(rewards) / len(rewards) < 0.7


@pytest.mark.slow
@pytest.mark.parametrize(("size", "level"), HASHES)
def test_generation_is_the_same_everywhere(size: str, level: int) -> None:
    made = json.dumps(DualDesk.goals(config(size, level)), sort_keys=True)
    digest = hashlib.sha256(made.encode()).hexdigest()
    assert digest[:16] == HASHES[size, level]


@pytest.mark.parametrize(("size", "level"), CASES)
def test_splits_share_no_user_and_no_scenario(size: str, level: int) -> None:
    goals = DualDesk.goals(config(size, level))
    users = [{goal["user_id"] for goal in goals[split]} for split in SPLITS]
    assert all(not a & b for a, b in itertools.combinations(users, 2))
    texts = [json.dumps([g["opening"], g["script"]]) for split in SPLITS for g in goals[split]]
    assert len(set(texts)) == len(texts)


def test_every_decision_and_every_slip_is_there() -> None:
    things = [goal["thing"] for goal in DualDesk.goals(config())["train"]]  # type: ignore[typeddict-item]
    verdicts = Counter(right_asks(thing)[1] for thing in things)
    assert min(verdicts.values()) > 0.03 * len(things)
    assert set(verdicts) == {"replace", "mended", *REASONS}
    assert {ask for thing in things for ask in thing["slips"]} == set(ASKS) - {LOOK}


# The customer's world.

THING: Thing = {
    "item_id": "1",
    "price": PHOTO_FROM,
    "serial": "S77",
    "light": "dark",
    "heals": False,
    "damaged": False,
    "slips": [],
    "manner": [],
    "wording": 0,
}


def held(**changes: Any) -> Thing:
    """A thing that is like another one but for this."""
    return THING | changes  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("thing", "asks", "verdict"),
    [
        (held(light="green"), [LOOK], "works"),
        (held(heals=True), [LOOK, CHARGE], "mended"),
        (held(light="blinking", heals=True), [LOOK, RESTART], "mended"),
        (held(), [LOOK, CHARGE, PHOTO, LABEL, ACCEPT], "replace"),
        (held(light="red"), [LOOK, PHOTO, LABEL, ACCEPT], "replace"),
        (held(light="red", price=PHOTO_FROM - 1), [LOOK, LABEL, ACCEPT], "replace"),
        (held(light="red", damaged=True), [LOOK, PHOTO], "damage"),
        (held(damaged=True, price=1), [LOOK, CHARGE, LABEL, ACCEPT], "replace"),
        (held(heals=True, slips=[CHARGE]), [LOOK, CHARGE, CHARGE], "mended"),
    ],
)
def test_what_the_policy_asks_for(thing: Thing, asks: list[str], verdict: str) -> None:
    assert right_asks(thing) == (asks, verdict)


def test_what_was_done_wrongly_is_said_and_changes_nothing() -> None:
    hands = Hands(held(slips=[CHARGE, LABEL], heals=True))
    hands.do(LOOK)
    before = hands.state
    wrong = hands.do(CHARGE)
    assert "minute" in wrong.text and "dark" in wrong.text and hands.state == before
    right = hands.do(CHARGE)
    assert right.is_due and not right.is_again and right.mends and "green" in right.text
    assert "S77" not in hands.do(LABEL).text and "S77" in hands.do(LABEL).text


def test_an_hour_on_the_charger_does_not_help_what_hangs() -> None:
    hands = Hands(held(light="blinking", heals=True))
    hands.do(LOOK)
    report = hands.do(CHARGE)
    assert not report.is_due and not report.mends and "blinks" in report.text


def test_the_policy_names_all_that_can_be_asked_for_and_refused() -> None:
    for rules in RULES.values():
        assert [word for word in (*ASKS, *REASONS) if word not in rules] == []


def test_the_other_shop_has_none_of_it() -> None:
    assert tools_of(DualDesk).keys() - tools_of(RetailDesk).keys() == {
        "ask_customer",
        "replace_item",
    }
    assert not set(REASONS) & set(RetailDesk.reasons)


# At the desk.


def begun(verdict: str) -> DualDesk:
    """An episode up to the first thing that the customer must do."""
    desk = next(d for d in desks(num=200, verdicts=[verdict]) if not d.thing["slips"])
    finished(desk.start())
    for step in until_the_asks(desk):
        finished(desk.reply(step) if isinstance(step, str) else desk.act(step))
    return desk


def test_what_is_needless_costs_patience_and_twice_costs_more() -> None:
    desk = begun("replace")
    heard = [finished(desk.act(ask_for(LABEL))) for _ in range(2)]
    assert heard[1].startswith("I have done that already.")
    assert isinstance(finished(desk.act(ask_for(LABEL))), Done)
    assert desk.needless == 3


def test_what_is_needed_costs_none() -> None:
    desk = begun("replace")
    for ask in right_asks(desk.thing)[0]:
        assert isinstance(finished(desk.act(ask_for(ask))), str)
    assert desk.needless == 0


def test_a_replacement_needs_the_label_and_the_right_number() -> None:
    desk = begun("replace")
    write = desk.goal["wants"][0]["write"]
    assert write
    with pytest.raises(ToolError, match="accepted"):
        finished(desk.act(write))
    finished(desk.act(ask_for(ACCEPT)))
    with pytest.raises(ToolError, match="serial"):
        finished(desk.act(call("replace_item", **write["arguments"] | {"serial": "S0"})))
    assert json.loads(finished(desk.act(write))) == {"ok": True}


def test_a_customer_whose_thing_works_again_thanks_and_leaves() -> None:
    desk = next(d for d in desks(num=200, verdicts=["mended"]) if d.goal["kind"] == "one")
    finished(desk.start())
    heard: Any = None
    for step in steps(desk):
        heard = finished(desk.reply(step) if isinstance(step, str) else desk.act(step))
    assert isinstance(heard, Done)


def test_a_model_that_plays_the_customer_is_told_what_it_finds() -> None:
    asked: list[str] = []

    class Llm:
        async def ask(self, messages: list[Any]) -> SimpleNamespace:
            asked.append(messages[-1]["content"])
            return SimpleNamespace(text="It is dark, I am afraid.")

    desk = next(desks(num=1))
    desk.cfg = config(user=LLMConfig(model="x"))
    desk.services = SimpleNamespace(llm=lambda cfg: Llm())  # type: ignore[assignment]
    finished(desk.start())
    assert finished(desk.act(ask_for(LOOK))) == "It is dark, I am afraid."
    assert LOOK in asked[0] and Hands(desk.thing).do(LOOK).text in asked[0]


@pytest.mark.parametrize("wrong", ["env.args.level=0", "env.args.kinds=[transfer]"])
def test_what_the_env_cannot_play_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong.split("=")[0]):
        load_experiment(
            [Path("configs/retail-7b.yaml")],
            [wrong],
            plugin_config=lambda use: DualDesk.Config,
        )
