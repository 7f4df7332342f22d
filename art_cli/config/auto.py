"""The meaning of `auto` in a config, for the run and for its memory estimate."""

from __future__ import annotations

from typing import Literal

from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.sft import SFTConfig

SMALLEST_ON_GPU = 1_000_000  # parameters
RECOMPUTE_FROM = 1_000_000_000  # parameters; below it, activations of 16k tokens fit a large GPU


def device_of(
    setting: Literal["auto", "cpu", "cuda"], num_params: int, *, has_gpu: bool
) -> Literal["cpu", "cuda"]:
    """Return the device of a model with `num_params` parameters.

    A tiny model is slower on a GPU, which waits for kernel launches: an H200 took longer for the
    quickstart's SFT than a CPU for that and ten steps.
    """
    if setting != "auto":
        return setting
    return "cuda" if has_gpu and num_params >= SMALLEST_ON_GPU else "cpu"


def dtype_of(cfg: ModelConfig, *, on_gpu: bool) -> Literal["float32", "bfloat16"]:
    """Return the dtype of the base's weights.

    Training all weights stays in float32: bfloat16 loses relative updates of 1e-5.
    """
    if cfg.dtype != "auto":
        return cfg.dtype
    return "bfloat16" if on_gpu and cfg.adapter is not None else "float32"


def recomputes(setting: Literal["auto", "on", "off"], num_params: int, *, on_gpu: bool) -> bool:
    """Return whether an update stores only each layer's input (train.gradient_checkpointing)."""
    return setting == "on" or (setting == "auto" and on_gpu and num_params > RECOMPUTE_FROM)


def warms_all(sft: SFTConfig, model: ModelConfig) -> bool:
    """Return whether SFT trains all weights, or the adapter alone."""
    learns_all = model.adapter is None or model.base == "tiny"
    return sft.weights == "all" or (sft.weights == "auto" and learns_all)
