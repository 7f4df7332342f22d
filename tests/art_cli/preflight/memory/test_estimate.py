"""What a run takes of a GPU: against hand-made sums, and against what autograd really keeps."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from qwen_7b import QWEN_7B
from transformers import AutoConfig, AutoModelForCausalLM

from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig, OpponentsConfig
from art_cli.config.sections.llm import LLMConfig
from art_cli.config.sections.model import DEFAULT_TARGETS, AdapterConfig, ModelConfig, TinyConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.embedded import rows
from art_cli.models import tiny
from art_cli.models.policy import Policy
from art_cli.preflight.memory import estimate as memory
from art_cli.preflight.memory.advice import KNOBS, advise
from art_cli.preflight.memory.estimate import (
    CUDA,
    GIB,
    VLLM_WORKING,
    Workload,
    estimate,
    num_trained,
    weights,
)
from art_cli.preflight.memory.fit import job_of
from art_cli.preflight.memory.shape import shape_of
from art_cli.training.algorithm import logprobs
from art_cli.training.algorithm.packing import TrainSequence, pack

SHAPE = shape_of(QWEN_7B)
JOB = Workload(
    rank=16,
    checkpointing=True,
    microbatch_tokens=8192,
    max_model_len=4096,
    max_num_seqs=64,
    episodes=48,
)
EVERY_KNOB = {path for path, _ in KNOBS}


def part(name: str, job: Workload, gpu: int | None = None) -> memory.Part:
    return next(p for p in estimate(SHAPE, job, gpu).parts if p.name == name)


# ---------------------------------------------------------------- by hand


def test_weights_adapter_and_optimizer_of_a_7b() -> None:
    assert SHAPE.num_params == 7_615_616_512  # as its model card says
    assert weights(SHAPE, JOB) == 2 * 7_615_616_512
    # sides of q, k, v, o, gate, up, down: 2 * 3584 + 2 * (3584 + 512) + 2 * 3584 + 3 * 22528
    assert num_trained(SHAPE, JOB) == 16 * 28 * (7168 + 8192 + 7168 + 67584)
    assert part("optimizer", JOB).update == 3 * 4 * 40_370_176  # gradient and two moments, float32


def test_a_quantized_base_keeps_its_embeddings() -> None:
    embeddings_norms_and_biases = 7_615_616_512 - 6_525_288_448
    expected = 2 * embeddings_norms_and_biases + 6_525_288_448 * 0.515875
    assert weights(SHAPE, replace(JOB, quantize="4bit")) == pytest.approx(expected)


def test_all_weights_in_float32_are_16_bytes_a_parameter() -> None:
    job = replace(JOB, rank=None, float32=True)
    kept = part("weights", job).update + part("optimizer", job).update
    assert kept == 16 * 7_615_616_512


def test_a_bounded_step_holds_what_is_trained_as_it_was_when_activations_are_gone() -> None:
    job = replace(JOB, rank=None, float32=True, is_bounded=True, num_processes=2)
    assert part("activations", job).update_least == 4 * 7_615_616_512 / 2
    short = replace(job, microbatch_tokens=1)
    assert part("activations", short).update == 4 * 7_615_616_512 / 2
    many, free = (part("activations", replace(JOB, is_bounded=b)) for b in (True, False))
    assert many.update == free.update and (many.update_least, free.update_least) == (
        4 * 40_370_176,
        0,
    )


def test_moments_in_8_bits_are_a_byte_and_a_scale_for_each_block() -> None:
    job = replace(JOB, optimizer="adamw_8bit")
    assert part("optimizer", job).update == (4 + 2 + 2 / 64) * 40_370_176


def test_the_cache_of_a_rollout() -> None:
    # keys and values, bfloat16, 28 layers of 4 heads of 128
    assert SHAPE.kv_bytes == 2 * 2 * 28 * 4 * 128
    cache = part("KV cache", JOB)
    assert cache.rollout == pytest.approx(48 * 4096 * 57344 * 4 / 3)  # it grows by copying
    assert part("KV cache", replace(JOB, max_num_seqs=12)).rollout == cache.rollout / 4
    assert cache.rollout_least == 0  # episodes may all end at once


def test_checkpointing_keeps_a_residual_a_layer_and_one_layer() -> None:
    one = 8192 * memory.saved_per_token(SHAPE, JOB) + 8192 * 4096 * 2  # and the mask
    one += memory._copies(SHAPE, JOB)
    assert part("activations", JOB).update == 28 * 8192 * 3584 * 2 + one
    assert part("activations", replace(JOB, checkpointing=False)).update == 28 * one


def test_processes_share_what_stays() -> None:
    alone = replace(JOB, engine="vllm")
    shared = replace(alone, num_processes=4)
    for name in ("weights", "adapter", "optimizer"):
        assert part(name, shared).update == part(name, alone).update / 4


def test_the_embedded_engine_needs_the_whole_policy_beside_the_first_ones_share() -> None:
    whole = part("weights", JOB).update
    assert part("weights", replace(JOB, num_processes=4)).update == whole * 5 / 4


def test_vllm_takes_its_fraction_beside_the_trainer_and_must_hold_one_episode() -> None:
    job = replace(JOB, engine="vllm", gpu_memory_utilization=0.5)
    assert part("vllm", job, 80 * GIB).rollout == 40 * GIB
    one = 2 * 7_615_616_512 + 4096 * 57344 + VLLM_WORKING
    assert part("vllm", job, 80 * GIB).rollout_least == one
    assert estimate(SHAPE, job, 80 * GIB).fit("rollout") == "fits"
    assert estimate(SHAPE, replace(job, gpu_memory_utilization=0.9), 80 * GIB).fit("rollout") == (
        "may run out"
    )
    tight = estimate(SHAPE, replace(job, gpu_memory_utilization=0.2), 80 * GIB)
    assert tight.fit("rollout") == "does not fit"  # vllm would refuse to start


def test_vllm_left_to_itself_takes_nine_tenths_of_what_the_trainer_leaves() -> None:
    job = replace(JOB, engine="vllm")
    left = 80 * GIB - 2 * 7_615_616_512 - 4 * 40_370_176 - CUDA
    assert part("vllm", job, 80 * GIB).rollout == pytest.approx(0.9 * left)
    assert estimate(SHAPE, job, 80 * GIB).fit("rollout") == "fits"
    assert estimate(SHAPE, job, 24 * GIB).fit("rollout") == "does not fit"  # the weights twice


def test_a_gpu_for_the_engine_is_advised_where_one_does_not_hold_both() -> None:
    (rollout,) = advise(SHAPE, replace(JOB, engine="vllm"), 24 * GIB, EVERY_KNOB)
    assert "engine.gpus" in {c.path for c in rollout.changes}


def test_an_engine_on_gpus_of_its_own_holds_its_share_and_nothing_of_the_trainer() -> None:
    job = replace(JOB, engine="vllm", shares_gpu=False, tensor_parallel_size=2)
    found = estimate(SHAPE, job)
    one = (2 * 7_615_616_512 + 4096 * 57344) / 2 + VLLM_WORKING
    assert found.total("rollout") == one + CUDA
    assert estimate(SHAPE, job, 80 * GIB).total("rollout") == pytest.approx(72 * GIB + CUDA)


def test_a_server_of_someone_else_s_takes_nothing_here() -> None:
    found = estimate(SHAPE, replace(JOB, engine="elsewhere"))
    assert not {"vllm", "engine", "KV cache"} & {p.name for p in found.parts}


# ---------------------------------------------------------------- against the real thing


NUM_TOKENS = 256
FAMILIES: dict[str, dict[str, Any]] = {"qwen2": {}, "qwen3": {"head_dim": 32}, "llama": {}}


@pytest.mark.parametrize(
    ("family", "dtype", "rank"),
    list(product(FAMILIES, (torch.float32, torch.bfloat16), (None, 4))),
)
def test_autograd_keeps_of_a_layer_what_the_formula_says(
    family: str, dtype: torch.dtype, rank: int | None
) -> None:
    config = {
        "model_type": family,
        "vocab_size": 400,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 320,
        "tie_word_embeddings": True,
        **FAMILIES[family],
    }
    shape = shape_of(config | {"num_hidden_layers": 1})
    job = replace(JOB, rank=rank, float32=dtype == torch.float32)
    kept = [_kept(config | {"num_hidden_layers": n}, dtype, rank) for n in (1, 3)]
    expected = memory.saved_per_token(shape, job) + memory._copies(shape, job) / NUM_TOKENS
    assert (kept[1] - kept[0]) / 2 == expected


MIXTURE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "vocab_size": 400,
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("targets", [["attention"], ["attention", "experts"]], ids=["", "experts"])
def test_autograd_keeps_of_a_layer_of_experts_about_what_the_formula_says(
    targets: list[str], rank: int | None
) -> None:
    shape = shape_of(MIXTURE | {"num_hidden_layers": 1}, targets)
    job = replace(JOB, rank=rank, float32=True)
    kept = [_kept(MIXTURE | {"num_hidden_layers": n}, torch.float32, rank, targets) for n in (1, 3)]
    expected = memory.saved_per_token(shape, job) + memory._copies(shape, job) / NUM_TOKENS
    assert (kept[1] - kept[0]) / 2 == pytest.approx(expected, rel=0.02)


def _kept(
    config: dict[str, Any],
    dtype: torch.dtype,
    rank: int | None,
    targets: Sequence[str] = DEFAULT_TARGETS,
) -> float:
    """Bytes a token that a forward leaves for the backward, weights not counted."""
    _, tokenizer = tiny.make(TinyConfig(), ["a b c"], 0)
    base = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).to(dtype)
    policy = Policy(base, tokenizer)
    if rank:
        policy.add_adapter(AdapterConfig(rank=rank, target_modules=list(targets)), 0)
    own = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    ids = [n % 390 + 1 for n in range(NUM_TOKENS)]
    mask = [0] + [1] * (NUM_TOKENS - 1)
    sequence = TrainSequence(ids=ids, mask=mask, engine_logprobs=[0.0] * NUM_TOKENS)
    batch = pack([sequence])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = policy.hidden(batch.ids, batch.positions, batch.layout)
    assert hidden.requires_grad
    return sum(s.nbytes() for pointer, s in kept.items() if pointer not in own) / NUM_TOKENS


def test_the_constants_are_those_of_the_code_that_they_speak_of() -> None:
    assert memory.HEAD_CHUNK == logprobs.CHUNK_ELEMENTS
    assert memory.PREFILL_TOKENS == rows.PREFILL_TOKENS


# ---------------------------------------------------------------- what to change


def test_a_change_that_is_advised_makes_it_fit() -> None:
    job = replace(JOB, checkpointing=False, microbatch_tokens=32768, max_model_len=32768)
    found = advise(SHAPE, job, 80 * GIB, EVERY_KNOB)
    assert {a.moment for a in found} == {"rollout", "update"}
    assert {"train.gradient_checkpointing", "train.microbatch_tokens"} <= {
        c.path for a in found for c in a.changes
    }
    for a in found:
        assert a.still is None and not a.needs_all
        for change in a.changes:
            assert estimate(SHAPE, change.job, 80 * GIB).fit(a.moment) == "fits"


def test_where_one_change_is_not_enough_several_are_named_together() -> None:
    job = replace(JOB, rank=None, float32=True, microbatch_tokens=16384)
    (rollout, update) = advise(SHAPE, job, 24 * GIB, EVERY_KNOB)
    for a in (rollout, update):
        assert a.needs_all and len(a.changes) > 1 and a.still is None
        assert estimate(SHAPE, a.changes[-1].job, 24 * GIB).fit(a.moment) == "fits"
    assert "model.adapter" in {c.path for c in update.changes}


def test_what_no_setting_mends_is_said_with_what_it_would_still_take() -> None:
    (update,) = (a for a in advise(SHAPE, JOB, 8 * GIB, {"train.microbatch_tokens"})[1:])
    assert update.still and update.still > 8 * GIB


def test_no_episode_is_made_shorter_than_its_turns() -> None:
    job = replace(JOB, max_model_len=65536, max_tokens=8192)
    (rollout,) = advise(SHAPE, job, 80 * GIB, {"engine.max_model_len"})
    assert rollout.changes[-1].job.max_model_len > job.max_tokens


def test_only_settings_that_the_config_has_are_advised() -> None:
    job = replace(JOB, checkpointing=False, microbatch_tokens=32768)
    found = advise(SHAPE, job, 80 * GIB, {"train.microbatch_tokens"})
    assert [c.path for a in found for c in a.changes] == ["train.microbatch_tokens"]


def test_a_game_takes_a_row_for_each_seat_and_a_twin_for_the_start() -> None:
    cfg = Experiment(
        name="x",
        env=EnvConfig(use="nim"),
        model=ModelConfig(base="b"),
        train=TrainConfig(steps=1, scenarios_per_step=4, group_size=8),
        eval=None,
    )

    def job(**who: Any) -> Workload:
        opponents = OpponentsConfig(**who)
        return job_of(replace(cfg, env=EnvConfig(use="nim", opponents=opponents)), None, None)

    alone, asked = job_of(cfg, None, None), job(train=LLMConfig(model="openai/o3"))
    assert alone.episodes == asked.episodes == job(train="script").episodes == 32
    assert job(train="policy").episodes == 64 and not job(train="policy").has_twin
    against = job(train="start")
    assert (against.episodes, against.reference_rows, against.has_twin) == (32, 32, True)
