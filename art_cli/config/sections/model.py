"""The section `model`: the model that is trained."""

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
    """LoRA (2106.09685) on linear layers of the text decoder."""

    rank: Count = 16
    """The inner dimension of the two small matrices beside each layer. A larger rank can learn more
    and needs proportionally more memory."""
    alpha: Positive = 32.0
    """The adapter's output is scaled by alpha / rank."""
    target_modules: Annotated[list[str], Field(min_length=1)] = field(
        default_factory=lambda: list(DEFAULT_TARGETS)
    )
    """The layers with an adapter: `attention` (all that mixes tokens, including recurrent layers),
    `mlp` (dense and shared experts), `experts` (routed ones), or names of modules, in which *
    matches any one part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyConfig:
    """The size of the model that `base: tiny` creates (Qwen3 architecture, random weights)."""

    hidden_size: Annotated[int, Field(ge=16, multiple_of=16), TINY] = 64
    """The hidden size of the model."""
    num_layers: Annotated[Count, TINY] = 2
    """The number of transformer layers."""
    vocab_size: Annotated[int, Field(ge=300), TINY] = 640
    """The vocabulary size of its tokenizer, which is trained on the demonstrations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model that is trained: one from Hugging Face, or `tiny`, which is created for the run."""

    base: str
    """A folder in Hugging Face's format, a hub id such as Qwen/Qwen2.5-0.5B-Instruct, or `tiny`."""
    adapter: AdapterConfig | None = field(default_factory=AdapterConfig)
    """The LoRA adapter to train. null: train all weights, which needs about eight times the
    memory."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """The dtype of the base's weights. auto: bfloat16 with an adapter on a GPU, else float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """The device for training. auto: a GPU if there is one, for models of at least 1M
    parameters."""
    quantize: Literal["4bit", "8bit"] | None = None
    """Quantize the base model under the adapter, to fit a larger one on a GPU. null: do not."""
    tool_format: ToolFormatName = "auto"
    """The format of the model's tool calls. auto: that of its chat template."""
    template_args: dict[str, Any] = field(default_factory=dict)
    """Variables of the chat template, for example {enable_thinking: false}."""
    tiny: TinyConfig = field(default_factory=TinyConfig)
    """The size of the model, if `base` is `tiny`."""


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
