"""The shop: what is generated, its tools and policy, its customers, and how it is scored."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import itertools
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cases import slow_but

from art_cli.config.load import load_experiment
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Done, ToolError
from art_cli.errors import ConfigError, LLMError
from art_cli.rollout.rollout import play_episode
from art_cli.types import Scenario
from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.service import cache, domain
from art_envs.service import desk as service
from art_envs.service.desk import ServiceDesk
from art_envs.service.gates import GateError, check, finished
from art_envs.service.goal import MIX, call
from art_envs.service.user import ScriptedUser

CASES = [("small", 0), ("small", 1), ("full", 2), ("full", 3), ("full", 4)]
FAST = (("small", 0), ("full", 2))
SOME = [c if c in FAST else pytest.param(*c, marks=pytest.mark.slow) for c in CASES]
SPLITS = ("train", "val", "test")
# Of what is generated. They change with the generator, never with the machine.
HASHES = {
    ("small", 0): "6a0cf3246287ca82",
    ("small", 1): "cbe1ef31ce2d529f",
    ("full", 2): "dae2e1355bfd0753",
    ("full", 3): "9b648f216ca5e9fa",
    ("full", 4): "6bd647a1d373f579",
}


def config(size: str = "full", level: int = 2, **settings: Any) -> RetailDesk.Config:
    return RetailDesk.Config(size=size, level=level, **settings)  # type: ignore[arg-type]


def all_scenarios(cfg: RetailDesk.Config) -> list[Scenario]:
    return [s for split in SPLITS for s in RetailDesk.scenarios(cfg, split)]


def first(cfg: RetailDesk.Config, kind: str) -> Scenario:
    """A scenario of a kind."""
    return next(s for s in RetailDesk.scenarios(cfg, "train") if s.data["goal"]["kind"] == kind)


def played(desk: RetailDesk, turns: Iterator[str] | Sequence[str]) -> float:
    """The reward of an assistant's turns."""
    earned = play_episode(desk, iter(turns).__next__).reward
    assert earned is not None
    return earned


def right_turns(scenario: Scenario, cfg: RetailDesk.Config) -> list[str]:
    """What the assistant says in the right conversation."""
    turns = RetailDesk(scenario, cfg).assistant()
    return list(itertools.islice(turns, len(scenario.data["goal"]["script"])))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "level"), CASES)
def test_generation_is_the_same_everywhere(size: str, level: int) -> None:
    cfg = config(size, level)  # every goal passes the gates, or this raises
    made = [RetailDesk.database(cfg), RetailDesk.goals(cfg)]
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
    assert digest[:16] == HASHES[size, level]


@pytest.mark.parametrize("level", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_mix(level: int) -> None:
    counts = Counter(g["kind"] for g in RetailDesk.goals(config(level=level))["train"])
    assert counts == {kind: 8 * percent for kind, percent in MIX.items()}


@pytest.mark.parametrize(("size", "level"), SOME)
def test_splits_share_no_user_and_no_scenario(size: str, level: int) -> None:
    goals = RetailDesk.goals(config(size, level))
    users = [{goal["user_id"] for goal in goals[split]} for split in SPLITS]
    assert all(not a & b for a, b in itertools.combinations(users, 2))
    texts = [json.dumps([g["opening"], g["script"]]) for split in SPLITS for g in goals[split]]
    assert len(set(texts)) == len(texts)


def test_what_was_generated_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = config("small", 0)

    def from_disk() -> tuple[Any, Any]:  # past the memory of this process
        tables = domain._database.__wrapped__(RetailDesk, cfg.size)
        return tables, service._goals.__wrapped__(RetailDesk, cfg)

    made = from_disk()  # or made, where this test is run alone
    monkeypatch.setattr(RetailDesk, "make_database", str)  # it is on disk: nothing makes it
    monkeypatch.setattr(service, "build_goals", str)
    assert from_disk() == made


def test_an_episode_holds_only_what_it_writes() -> None:
    cfg = config()
    scenarios = all_scenarios(cfg)
    desks = []
    tracemalloc.start()
    for scenario in scenarios:
        desk = RetailDesk(scenario, cfg)
        finished(desk.start())
        for write in desk.gold_writes():
            finished(desk.act(write))
        desks.append(desk)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(desks) < 20_000  # bytes


@pytest.mark.parametrize(("size", "level"), SOME)
def test_demonstrations_earn_everything(size: str, level: int) -> None:
    cfg = config(size, level)
    scenarios = list(RetailDesk.scenarios(cfg, "train"))
    for scenario, messages in zip(scenarios, RetailDesk.demonstrations(cfg, 60), strict=False):
        turns = [m["content"] for m in messages if m["role"] == "assistant"]
        desk = RetailDesk(scenario, cfg)
        assert played(desk, turns) == 1
        assert desk.metrics["tool_errors"] == 0
        assert desk.metrics.get("confirm_before_write", 1) == 1


def test_noisy_demonstrations_are_sometimes_wrong() -> None:
    cfg = config("small", 0, demo_noise=0.9)
    rewards = []
    for scenario, messages in zip(
        RetailDesk.scenarios(cfg, "train"), RetailDesk.demonstrations(cfg, 100), strict=False
    ):
        turns = [m["content"] for m in messages if m["role"] == "assistant"]
        rewards.append(played(RetailDesk(scenario, cfg), turns))
    assert 0.2 < sum(rewards) / len(rewards) < 0.7


@pytest.mark.parametrize("level", slow_but((2,), (2, 3)))
def test_the_user_never_tells_what_he_may_not(level: int) -> None:
    cfg = config(level=level)
    questions = [
        "What are your name, email, zip code and user id?",
        "What is the order number? Which order? What is the reason? Which payment method?",
        "Is there anything else?",
    ]
    for scenario in RetailDesk.scenarios(cfg, "val"):
        goal = scenario.data["goal"]
        user = ScriptedUser(goal, RetailDesk.slots)
        said = " ".join(finished(user.say(q)).text for q in questions * 3)
        secrets = [v for slot, v in goal["facts"].items() if slot not in goal["may_reveal"]]
        assert secrets
        assert not [
            secret for secret in secrets if secret in said and secret not in str(goal["wants"])
        ]


# What a wrong generator would make, and the gates must see.
BROKEN: dict[str, Any] = {
    "no refusal asked for": ("refused", lambda g: g["wants"][0].update(reasons=[])),
    "an unknown argument": ("one", lambda g: g.update(may_reveal=[])),
    "a needless write": ("several", lambda g: g["script"].insert(-1, _write(g))),
    "a refused call": ("one", lambda g: g["script"].insert(-1, _write(g) | {"name": "get_item"})),
    "an answer that is not given": (
        "information",
        lambda g: g["wants"][0].update(outputs=["9.99"]),
    ),
    "no evidence": ("information", lambda g: g["script"].insert(0, call("tell", value="7"))),
    "nothing to do": ("one", lambda g: g.update(script=["It is done."], evidence=[])),
}


def _write(goal: dict[str, Any]) -> Any:
    return next(s for s in reversed(goal["script"]) if not isinstance(s, str))


@pytest.mark.parametrize("broken", BROKEN)
def test_the_gates_see(broken: str) -> None:
    cfg = config()
    kind, breaks = BROKEN[broken]
    scenario = first(cfg, kind)
    check(RetailDesk, cfg, scenario)
    data = copy.deepcopy(scenario.data)
    breaks(data["goal"])
    with pytest.raises(GateError):
        check(RetailDesk, cfg, Scenario(id="x", split="train", seed=0, data=data))


def test_a_write_without_a_yes_fails_the_episode() -> None:
    cfg = config("small", 1)
    scenario = first(cfg, "one")
    hasty = [turn for turn in right_turns(scenario, cfg) if '"confirm"' not in turn]
    desk = RetailDesk(scenario, cfg)
    assert played(desk, hasty) == 0
    assert finished(desk.has_right_state())
    assert desk.metrics["confirm_before_write"] == 0
    assert played(RetailDesk(scenario, cfg), right_turns(scenario, cfg)) == 1


def test_who_does_not_identify_the_user_earns_nothing() -> None:
    cfg = config("small", 0)
    scenario = first(cfg, "one")
    turns = [turn for turn in right_turns(scenario, cfg) if "find_user" not in turn]
    assert played(RetailDesk(scenario, cfg), turns) == 0


class FakeUser:
    """A language model that answers in turn; an exception is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)

    async def ask(self, messages: list[Any]) -> SimpleNamespace:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(text=answer)


def desk_with(*answers: str | Exception) -> RetailDesk:
    desk = RetailDesk(first(config(), "one"), config(user=LLMConfig(model="x")))
    desk.services = SimpleNamespace(llm=lambda cfg: FakeUser(*answers))  # type: ignore[assignment]
    finished(desk.start())
    return desk


def test_a_user_that_leaves_too_early_is_asked_again() -> None:
    desk = desk_with("Bye. [goodbye]", "Bye! [goodbye]")
    assert finished(desk.reply("Hello?")) == "Bye."
    assert isinstance(finished(desk.reply("Are you sure?")), Done)


def test_a_user_that_fails_is_a_failure_of_infrastructure() -> None:
    with pytest.raises(LLMError):
        finished(desk_with(LLMError("no answer")).reply("Hello?"))


def test_the_judge_is_told_what_was_right_and_what_changed() -> None:
    cfg = config()
    desk = RetailDesk(first(cfg, "one"), cfg)
    played(desk, desk.assistant())
    context = asyncio.run(desk.judge_context())
    assert desk.goal["wants"][0]["words"] in context
    assert desk.gold_writes()[0]["name"] in context


def test_unknown_ids_are_honest_errors() -> None:
    desk = RetailDesk(first(config(), "one"), config())
    for name, arguments in {
        "get_order": {"order_id": "W0"},
        "get_user": {"user_id": "nobody"},
        "find_user_by_email": {"email": "nobody@example.com"},
        "cancel_order": {"order_id": "W0", "reason": "no longer needed"},
        "calculate": {"expression": "one"},
    }.items():
        with pytest.raises(ToolError):
            finished(desk.act({"name": name, "arguments": arguments}))


def test_the_folder_of_the_cache_may_be_missing_or_unwritable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    made = [cache.cached("x", Path(__file__).parent, "y", lambda: {1: (2,)}) for _ in range(2)]
    assert made == [{"1": [2]}] * 2


def test_a_user_may_be_set_in_yaml() -> None:
    changes = ["env.args.user.model=reference", "env.args.kinds=[one,refused]"]
    loaded = load_experiment(
        [Path("configs/retail-7b.yaml")], changes, plugin_config=lambda use: RetailDesk.Config
    )
    assert loaded.env_settings.user.model == "reference"
    assert loaded.env_settings.kinds == ("one", "refused")


@pytest.mark.parametrize(("desk", "level", "most"), [(RetailDesk, 2, 1), (AirlineDesk, 4, 3)])
def test_a_level_that_a_small_desk_lacks_is_refused(
    desk: type[ServiceDesk], level: int, most: int
) -> None:
    changes = ["env.args.size=small", f"env.args.level={level}"]
    told = rf"env\.args: size: small has no level {level}.* write level: {most}"
    with pytest.raises(ConfigError, match=told):
        load_experiment(
            [Path("configs/retail-7b.yaml")], changes, plugin_config=lambda use: desk.Config
        )
    assert desk.Config(size="small", level=most).level == most  # type: ignore[arg-type]
