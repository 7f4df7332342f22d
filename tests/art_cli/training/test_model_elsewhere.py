"""From Python: a model whose env runs in an interpreter of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import colours
import counting
import pytest
import yaml
from colours import colours_model

import art_cli as art
from art_cli.config.resume import changes_on_resume
from art_cli.errors import UsageError
from art_cli.rollout.env_worker.remote import RemoteEnv
from art_cli.runs.directory import RunDir

COUNTING = f"{counting.__file__}:Counting"


def model(name: str, **more: Any) -> art.TrainableModel:
    """One of a few thousand parameters for the env of tests/colours.py."""
    made = colours_model(0).experiment
    return art.TrainableModel(
        name=name,
        project="test",
        base_model=made.model,
        env=f"{colours.__file__}:Opposites",
        sft=made.sft,
        sampling=made.sampling,
        train=art.TrainConfig(steps=1, learning_rate=4e-3),
        **more,
    )


def trained(folder: Path, made: art.TrainableModel) -> tuple[list[Any], float, RunDir]:
    """One step; what was sampled and earned, how good it then is, and where it is."""

    async def go() -> tuple[list[Any], float, RunDir]:
        async with art.LocalBackend(folder) as backend:
            await made.register(backend)
            scenarios = art.scenarios_of(made, "train")[:4]
            groups = await art.gather_trajectory_groups(made, scenarios, group_size=4)
            await made.train(groups)
            found = [(t.messages, t.reward) for g in groups for t in g.trajectories]
            held_out = await art.evaluate(made, episodes=16)
            return found, held_out.reward, made.parts.run

    return asyncio.run(go())


def test_it_learns_the_same_there_as_here(tmp_path: Path) -> None:
    there = model("there", python=sys.executable)
    assert issubclass(there.env_class, RemoteEnv)
    *here, _ = trained(tmp_path, model("here"))
    *found, run = trained(tmp_path, there)
    assert found == here
    assert (run.logs / "env.log").exists()
    assert yaml.safe_load(run.config.read_text())["env"]["python"] == sys.executable
    [change, *_] = changes_on_resume(run.config.read_text(), model("there").config_yaml)
    assert change.startswith("env.python: ")


@pytest.mark.parametrize("python", [None, sys.executable])
def test_settings_may_be_a_mapping_which_is_checked(python: str | None) -> None:
    def made(settings: dict[str, Any]) -> art.TrainableModel:
        return art.TrainableModel(
            name="a",
            project="b",
            base_model="tiny",
            env=COUNTING,
            python=python,
            settings=settings,
        )

    found = made({"until": 7})
    assert found.settings.until == 7 and found.experiment.env.args == {"until": 7}
    with pytest.raises(UsageError, match=r"env: args\.untill: unknown key\. Did you mean 'until'"):
        made({"untill": 7})


def test_a_class_of_this_interpreter_is_not_imported_elsewhere() -> None:
    with pytest.raises(UsageError, match=r"Counting is a class of this interpreter"):
        art.TrainableModel(
            name="a", project="b", base_model="tiny", env=counting.Counting, python=sys.executable
        )


def test_an_interpreter_that_is_none_is_told() -> None:
    with pytest.raises(UsageError, match=r"env\.python: .*no-such-python"):
        art.TrainableModel(
            name="a", project="b", base_model="tiny", env=COUNTING, python="no-such-python"
        )
