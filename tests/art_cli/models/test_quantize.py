"""What a GPU and a package are needed for says so."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from batches import SAMPLING, MakePolicy, config

from art_cli.config.sections.model import ModelConfig
from art_cli.errors import PreflightError
from art_cli.models import loading
from art_cli.models.loading import load_policy
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.optimizers import make_optimizer

without_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed"
)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_quantized_base_needs_a_gpu() -> None:
    with pytest.raises(PreflightError, match=r"model\.quantize=4bit needs a CUDA device"):
        load_policy(ModelConfig(base="some/model", quantize="4bit"), [], 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_8_bit_optimizer_needs_a_gpu(make_policy: MakePolicy) -> None:
    with pytest.raises(PreflightError, match="adamw_8bit, but torch sees no CUDA device"):
        make_optimizer(make_policy().trainable, config(optimizer="adamw_8bit"))


def test_a_run_that_is_only_evaluated_needs_no_optimizer(make_policy: MakePolicy) -> None:
    GRPOTrainer(make_policy(), config(optimizer="adamw_8bit"), SAMPLING)


@without_bitsandbytes
@pytest.mark.usefixtures("cuda")
def test_a_quantized_base_names_the_package_it_needs() -> None:
    with pytest.raises(PreflightError, match=r"needs bitsandbytes: pip install 'art-cli\[quant"):
        load_policy(ModelConfig(base="some/model", quantize="8bit"), [], 0)


@without_bitsandbytes
@pytest.mark.usefixtures("cuda")
def test_the_8_bit_optimizer_names_the_package_it_needs(make_policy: MakePolicy) -> None:
    with pytest.raises(
        PreflightError, match=r"needs bitsandbytes: pip install 'art-cli\[quantize\]'"
    ):
        make_optimizer(make_policy().trainable, config(optimizer="adamw_8bit"))


def test_the_head_of_a_quantized_model_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is multiplied with the hidden states here, not by its own module."""
    monkeypatch.setattr(loading, "find_spec", lambda name: object())
    for bits in ("4bit", "8bit"):
        settings = loading._quantization(bits, "cuda", torch.bfloat16)
        config = settings["quantization_config"]
        assert config.load_in_4bit == (bits == "4bit") != config.load_in_8bit
        assert config.llm_int8_skip_modules is None  # transformers' default: the head is left out
