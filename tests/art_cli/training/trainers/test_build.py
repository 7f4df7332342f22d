"""The trainer of a config counts as the config says."""

from __future__ import annotations

from pathlib import Path

import pytest
from architectures import chatml_tokenizer, make_architecture
from batches import MakePolicy, config, distance, gradient_of, make_groups

from art_cli.config.schema import Experiment
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.errors import UsageError
from art_cli.models.policy import Policy
from art_cli.system.progress import silent
from art_cli.training.trainers.base import Trainer
from art_cli.training.trainers.build import make_trainer
from art_cli.training.trainers.distributed import ranks


def trainer_of(policy: Policy, folder: Path, max_model_len: int, num_processes: int = 1) -> Trainer:
    cfg = Experiment(
        name="test",
        env=EnvConfig(use="order_desk"),
        model=ModelConfig(base="tiny"),
        engine=EngineConfig(max_model_len=max_model_len),
        sampling=SamplingConfig(temperature=0.7, max_tokens=40),
        train=config(loss="dr_grpo", num_processes=num_processes),
    )
    return make_trainer(cfg, policy, None, folder, silent)


def test_dr_grpo_divides_by_the_longest_conversation(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    """Not by one turn's limit: a trajectory has several turns."""
    gradients = []
    for max_model_len in (256, 1024):
        policy = make_policy()
        trainer_of(policy, tmp_path, max_model_len).step(make_groups(policy, noise=0), 0)
        gradients.append(gradient_of(policy.model))
    assert distance(4 * gradients[1], gradients[0]) < 1e-6


def test_ranks_divide_by_the_same(
    make_policy: MakePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()

    class Counted(Exception):
        pass

    def count(groups: object, cfg: object, max_model_len: int) -> None:
        assert max_model_len == 256
        raise Counted  # before any rank is started

    monkeypatch.setattr(ranks, "training_sequences", count)
    with pytest.raises(Counted):
        trainer_of(policy, tmp_path, 256, num_processes=2).step(make_groups(policy, noise=0), 0)


def test_a_base_that_is_not_read_in_one_forward_is_not_shared_out(tmp_path: Path) -> None:
    """Ranks gather weights layer by layer: each must run as many forwards as the others."""
    hybrid = Policy(make_architecture("lfm2"), chatml_tokenizer())
    with pytest.raises(UsageError, match=r"Lfm2ForCausalLM, updates read .* Set it to 1"):
        trainer_of(hybrid, tmp_path, 256, num_processes=2)
    assert trainer_of(hybrid, tmp_path, 256)
