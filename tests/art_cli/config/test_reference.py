"""What is known of each key, for people and for editors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from art_cli.config import schema
from art_cli.config.foreign_keys import ELSEWHERE
from art_cli.config.reference import json_schema, key_at, keys_of
from art_cli.config.sections.deploy import TARGETS
from art_cli.errors import UsageError

CONFIGS = [
    path
    for path in sorted((Path(__file__).parents[3] / "configs").rglob("*.yaml"))
    if "\ntrain:" in path.read_text(encoding="utf-8")
]


def test_a_key_has_its_meaning_what_it_takes_its_default_and_what_it_needs() -> None:
    key = key_at("engine.gpus")
    assert (key.takes, key.default) == ("list of: integer from 0 or null", "`null`")
    assert key.meaning.startswith("The numbers of the GPUs reserved for vLLM.")
    assert key.needs == ["Only with `engine.use` vllm", "Not with `engine.url`"]
    assert key_at("train.steps").default == "**needed**" and key_at("train").sections


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("train.lr", "no key 'lr' under 'train'. Did you mean 'learning_rate'?"),
        (
            "num_generations",
            "no key 'num_generations' at the top. Did you mean 'train.group_size'?",
        ),
        ("train.steps.more", "no key 'more' under 'train.steps'"),
        ("", "no key '' at the top"),
    ],
)
def test_a_key_that_is_none_is_said_with_the_right_one(path: str, says: str) -> None:
    with pytest.raises(UsageError, match="there is ") as raised:
        key_at(path)
    assert says in str(raised.value)


def test_every_key_has_a_description_of_whole_sentences() -> None:
    seen, todo = 0, [schema.Experiment, *TARGETS.values()]
    while todo:
        section = todo.pop()
        for key in keys_of(section):
            seen += 1
            where = f"{section.__name__}.{key.name}"
            assert re.fullmatch(r"[A-Z`].{8,}[.]", key.meaning), where
            todo += key.sections
    assert seen > 150


@pytest.mark.parametrize(
    ("foreign", "key"),
    [
        ("train.num_generations", "group_size"),
        ("train.beta", "kl_coef"),
        ("train.per_device_train_batch_size", "scenarios_per_step"),
        ("train.passes", "num_iterations"),
        ("train.schedule_warmup_steps", "warmup_steps"),
        ("train.refill", "dynamic_sampling"),
        ("engine.gpu_memory_fraction", "gpu_memory_utilization"),
        ("engine.max_concurrent", "max_num_seqs"),
        ("model.adapter.lora_r", "rank"),
        ("model.lora_r", "model.adapter.rank"),
        ("reward.ruler", "judge"),
        ("deploy.to", "use"),
        ("warmup", "sft"),
    ],
)
def test_a_foreign_or_former_name_is_answered_with_the_key(foreign: str, key: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{key}'"):
        key_at(foreign)


def test_each_foreign_name_leads_to_a_key() -> None:
    for key in ELSEWHERE:
        assert key_at(key).meaning


@dataclass(frozen=True)
class Settings:
    """Of some env."""

    level: int = 0


def mistakes(config: Any, env: str | None = None, settings: type | None = None) -> list[str]:
    checker = jsonschema.Draft202012Validator(json_schema(env, settings))
    return [".".join(map(str, e.absolute_path)) for e in checker.iter_errors(config)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_an_editor_finds_nothing_wrong_with_our_configs(path: Path) -> None:
    assert mistakes(yaml.safe_load(path.read_text())) == []


def test_an_editor_finds_what_is_wrong() -> None:
    good = {"env": {"use": "x"}, "model": {"base": "tiny"}, "train": {"steps": 1}}
    assert mistakes(good) == []
    assert mistakes(good | {"seed": "${oc.decode:${oc.env:SEED}}"}) == []
    assert mistakes(good | {"seed": -1}) == ["seed"]
    assert mistakes(good | {"train": {"steps": 1, "lr": 1}}) == ["train"]
    assert mistakes({"env": {"use": "x"}}) == ["", ""]


def test_with_an_env_its_settings_are_checked() -> None:
    config: dict[str, Any] = {"model": {"base": "tiny"}, "train": {"steps": 1}}
    env = {"use": "x", "args": {"level": 2}}
    assert mistakes(config | {"env": env}, "x", Settings) == []
    assert mistakes(config | {"env": env | {"args": {"levle": 2}}}, "x", Settings) == ["env.args"]
    assert mistakes(config | {"env": env | {"use": "y"}}, "x", Settings) == ["env.use"]
