"""The optimizer of GRPO."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from art_cli.config.sections.train import TrainConfig
from art_cli.errors import PreflightError

BETAS = (0.9, 0.95)


def check_optimizer(cfg: TrainConfig) -> None:
    """Raise PreflightError if the package or device for the configured optimizer is missing."""
    if cfg.optimizer == "adamw":
        return
    if not torch.cuda.is_available():
        raise PreflightError(
            f"train.optimizer is {cfg.optimizer}, but torch sees no CUDA device; use "
            "train.optimizer=adamw"
        )
    if find_spec("bitsandbytes") is None:
        raise PreflightError(
            f"train.optimizer={cfg.optimizer} needs bitsandbytes: pip install "
            "'art-cli[quantize]', or use train.optimizer=adamw"
        )


def make_optimizer(params: list[nn.Parameter], cfg: TrainConfig) -> torch.optim.Optimizer:
    """Create AdamW, with 8-bit state (2110.02861) if configured. Raises PreflightError."""
    check_optimizer(cfg)
    settings: dict[str, Any] = {
        "lr": cfg.learning_rate,
        "betas": BETAS,
        "weight_decay": cfg.weight_decay,
    }
    if cfg.optimizer == "adamw":
        return torch.optim.AdamW(params, **settings, fused=True)
    from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports]

    return AdamW8bit(params, **settings)
