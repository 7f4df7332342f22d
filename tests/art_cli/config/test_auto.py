"""What `auto` stands for, with a GPU and without."""

from typing import Literal

import pytest

from art_cli.config.auto import (
    RECOMPUTE_FROM,
    SMALLEST_ON_GPU,
    device_of,
    dtype_of,
    recomputes,
    warms_all,
)
from art_cli.config.sections.model import AdapterConfig, ModelConfig
from art_cli.config.sections.sft import SFTConfig

ADAPTER = AdapterConfig()


@pytest.mark.parametrize(
    ("adapter", "on_gpu", "dtype"),
    [
        (ADAPTER, True, "bfloat16"),
        (ADAPTER, False, "float32"),
        (None, True, "float32"),  # all weights: bfloat16 would lose small updates
        (None, False, "float32"),
    ],
)
def test_only_a_base_under_an_adapter_on_a_gpu_is_in_bfloat16(
    adapter: AdapterConfig | None, on_gpu: bool, dtype: str
) -> None:
    assert dtype_of(ModelConfig(base="some/model", adapter=adapter), on_gpu=on_gpu) == dtype


@pytest.mark.parametrize(
    ("setting", "num_params", "has_gpu", "device"),
    [
        ("auto", SMALLEST_ON_GPU, True, "cuda"),
        ("auto", SMALLEST_ON_GPU, False, "cpu"),
        ("auto", SMALLEST_ON_GPU - 1, True, "cpu"),
        ("cuda", 1, True, "cuda"),
        ("cpu", 10**9, True, "cpu"),
    ],
)
def test_a_gpu_is_used_where_there_is_one_but_not_for_a_tiny_model(
    setting: Literal["auto", "cpu", "cuda"], num_params: int, has_gpu: bool, device: str
) -> None:
    assert device_of(setting, num_params, has_gpu=has_gpu) == device


def test_what_the_config_names_is_taken() -> None:
    assert dtype_of(ModelConfig(base="some/model", dtype="float32"), on_gpu=True) == "float32"
    assert recomputes("on", 1, on_gpu=False) and not recomputes("off", 10**12, on_gpu=True)
    assert warms_all(SFTConfig(weights="all"), ModelConfig(base="some/model", adapter=ADAPTER))


def test_large_models_on_a_gpu_recompute_their_layers() -> None:
    assert recomputes("auto", RECOMPUTE_FROM + 1, on_gpu=True)
    assert not recomputes("auto", RECOMPUTE_FROM, on_gpu=True)
    assert not recomputes("auto", RECOMPUTE_FROM + 1, on_gpu=False)


@pytest.mark.parametrize("adapter", [ADAPTER, None])
def test_a_warm_up_trains_what_the_run_trains(adapter: AdapterConfig | None) -> None:
    model = ModelConfig(base="some/model", adapter=adapter)
    assert warms_all(SFTConfig(), model) == (adapter is None)
    assert warms_all(SFTConfig(), ModelConfig(base="tiny", adapter=adapter))
