"""What is done inside vLLM's worker; with vLLM itself: tests/integration/vllm/test_families.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from art_cli.engines.vllm.worker import forget_cpu_experts


@pytest.mark.parametrize(("device", "kernel"), [("cpu", None), ("meta", "as it was")])
def test_experts_on_a_cpu_are_prepared_anew(device: str, kernel: str | None) -> None:
    experts: Any = torch.nn.Module()
    experts.w13_weight = torch.nn.Parameter(torch.zeros(2, device=device))
    experts.quant_method = SimpleNamespace(moe_kernel="as it was", _setup_kernel=None)
    forget_cpu_experts(torch.nn.Sequential(torch.nn.Linear(2, 2), experts))
    assert experts.quant_method.moe_kernel == kernel
