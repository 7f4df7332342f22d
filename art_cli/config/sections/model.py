"""The section `model`: what is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.marks import OnlyWith
from art_cli.config.rule import Rule, clash, is_set
from art_cli.config.tool_formats import ToolFormatName
from art_cli.config.values import Count, Positive

TINY = OnlyWith("model.base", ("tiny",))
DEFAULT_TARGETS = ("attention", "mlp")
MAX_LORA_RANK = 512  # of vLLM


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """LoRA (2106.09685) on linear maps of the text decoder."""

    rank: Count = 16
    """The inner size of the two small matrices beside each map. A larger rank can learn more, and
    takes memory in proportion."""
    alpha: Positive = 32.0
    """The adapter's output counts alpha / rank times."""
    target_modules: Annotated[list[str], Field(min_length=1)] = field(
        default_factory=lambda: list(DEFAULT_TARGETS)
    )
    """The maps that get an adapter: `attention` (all that mixes tokens, recurrent layers too),
    `mlp` (dense and shared experts), `experts` (routed ones), or names of modules, where * stands
    for any one part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyConfig:
    """The size of the model that `base: tiny` makes (Qwen3 architecture, random weights)."""

    hidden_size: Annotated[int, Field(ge=16, multiple_of=16), TINY] = 64
    """The width of the model."""
    num_layers: Annotated[Count, TINY] = 2
    """The number of transformer layers."""
    vocab_size: Annotated[int, Field(ge=300), TINY] = 640
    """The number of tokens of its tokenizer, which is trained on the demonstrations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model that is trained: one of Hugging Face, or `tiny`, made on the spot."""

    base: str
    """A folder in Hugging Face's format, a hub id such as Qwen/Qwen2.5-0.5B-Instruct, or `tiny`."""
    adapter: AdapterConfig | None = field(default_factory=AdapterConfig)
    """The LoRA adapter that is trained. null: all weights are, which takes about eight times the
    memory."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The type of the base's weights. auto: bfloat16 under an adapter on a GPU, else float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the policy is trained. auto: on a GPU if there is one, from 1M parameters on."""
    quantize: Literal["4bit", "8bit"] | None = None
    """Quantize the base under the adapter, to fit a larger one on a GPU. null: as it is."""
    tool_format: ToolFormatName = "auto"
    """How the model writes tool calls. auto: what its chat template shows."""
    template_args: dict[str, Any] = field(default_factory=dict)
    """Variables of the chat template, for example {enable_thinking: false}."""
    tiny: TinyConfig = field(default_factory=TinyConfig)
    """The size of `base: tiny`."""


MODEL_RULES = (
    clash(
        {"model.quantize": is_set, "model.adapter": None},
        "keeps the base as it is, but model.adapter is null: there is nothing to train; "
        "train an adapter, or remove it",
    ),
    clash(
        {"model.quantize": is_set, "model.base": "tiny"},
        "has no effect with model.base=tiny; remove it",
    ),
    clash(
        {"model.quantize": is_set, "model.device": "cpu"},
        "needs a GPU, but model.device is cpu; remove one of them",
    ),
    clash(
        {"model.quantize": is_set, "sft.weights": "all"},
        "keeps the base as it is, but sft.weights is all; write adapter",
    ),
    clash(
        {"model.quantize": is_set, "engine.use": "vllm", "engine.sync": "adapter".__ne__},
        "leaves nothing that an adapter can be merged into; add engine.sync: adapter",
    ),
    clash(
        {"model.quantize": is_set, "train.num_processes": (1).__lt__},
        "{0} works in one process only, and train.num_processes is {1}; remove one of them",
    ),
    Rule(
        "model.adapter.rank",
        ("engine.use",),
        lambda rank, use: use == "vllm" and rank > MAX_LORA_RANK,
        f"must be at most {MAX_LORA_RANK} with engine.use=vllm, got {{0}}",
    ),
)
