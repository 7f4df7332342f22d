"""The same path on a CUDA device; skipped where there is none."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
import torch
from colours import colours_model

import art_cli as art

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("adapter", [None, art.AdapterConfig(rank=8)])
def test_a_step_on_a_gpu_is_on_policy(
    tmp_path: Path, dtype: str, adapter: art.AdapterConfig | None
) -> None:
    """`train` raises where engine and trainer disagree, and so does the canary of the sync."""
    model = colours_model(0, adapter=adapter)
    on_gpu = dataclasses.replace(model.experiment.model, device="cuda", dtype=dtype)
    model.experiment = dataclasses.replace(model.experiment, model=on_gpu)

    async def go() -> dict[str, float]:
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            scenarios = art.scenarios_of(model, "train")[:8]
            return await model.train(await art.gather_trajectory_groups(model, scenarios))

    metrics = asyncio.run(go())
    assert metrics["loss/logprob_gap"] < (1e-4 if dtype == "float32" else 5e-2)
