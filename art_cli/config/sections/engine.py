"""The section `engine`: the engine that generates tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.marks import NotWith, OnlyWith
from art_cli.config.plugins import FORM, Plugin
from art_cli.config.rule import Rule, clash, is_positive, is_set
from art_cli.config.values import Count, CountOrZero, Share

MAX_MODEL_LEN = 4096
EMBEDDED = OnlyWith("engine.use", ("transformers", FORM))
VLLM = OnlyWith("engine.use", ("vllm", FORM))
STARTED = NotWith("engine.url", "a server that someone else has started")
OWN_OPTIONS = {  # options of `vllm serve` that are set from other keys
    *("model", "served_model_name", "host", "port", "dtype", "enable_lora", "max_lora_rank"),
    *("max_model_len", "max_num_seqs", "tensor_parallel_size", "gpu_memory_utilization"),
    *("logprobs_mode", "enable_sleep_mode", "generation_config", "enable_scale_out"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The engine that generates: the trainer's own process, or vLLM servers started with the run.

    `gpus: null` puts vLLM on the trainer's GPU. They take turns, and vLLM sleeps during updates. On
    several nodes, `nodes: 1` reserves the last node for vLLM. Replicas are spread over these nodes
    and need no GPU numbers.
    """

    use: Literal["transformers", "vllm"] | Annotated[str, Plugin("engines")] = "transformers"
    """The trainer's own process (transformers, on a CPU too), vLLM, which is faster on a GPU, or a
    class of your own, which is made of this section."""
    max_num_seqs: Count = 256
    """The most sequences with a KV cache at once, per replica. Lower it if memory runs out."""
    max_model_len: Annotated[int, Field(ge=16)] = MAX_MODEL_LEN
    """The most tokens of one sequence, prompt and turns together. An episode ends when it is
    full."""
    deterministic: Annotated[bool, EMBEDDED] = True
    """Wait for every env before each decoding step, so that the same seed gives the same run. false
    is faster if envs are slow."""
    gpus: Annotated[list[CountOrZero] | None, VLLM, STARTED] = None
    """The numbers of the GPUs that vLLM has to itself. null: it shares the trainer's."""
    nodes: Annotated[CountOrZero, OnlyWith("engine.use", ("vllm",)), STARTED] = 0
    """How many of `backend.num_nodes` serve vLLM alone; the others train."""
    tensor_parallel_size: Annotated[Count, VLLM, STARTED] = 1
    """GPUs of one replica. Raise it if the weights do not fit on one GPU."""
    replicas: Annotated[Count, VLLM, STARTED] = 1
    """The number of servers that share the episodes."""
    gpu_memory_utilization: Annotated[Share | None, VLLM, STARTED] = None
    """The share of a GPU's memory that vLLM may use. null: the free memory."""
    sync: Annotated[Literal["auto", "adapter", "merged"], VLLM] = "auto"
    """How to send new weights to vLLM: only the adapter, or merged into the base. auto: try both
    and use the faster one."""
    url: Annotated[str | None, VLLM] = None
    """The URL of a vLLM server that is already running. null: the run starts its own."""
    extra: Annotated[dict[str, Any], VLLM, STARTED] = field(default_factory=dict)
    """Further options of `vllm serve`, for example {kv_cache_dtype: fp8}."""

    @property
    def shares_gpu(self) -> bool:
        """True if vLLM and the trainer take turns on one GPU."""
        return self.gpus is None and not self.nodes


ENGINE_RULES = (
    Rule(
        "engine.max_model_len",
        ("sampling.max_tokens",),
        lambda length, turn: length <= turn,
        "must be more than sampling.max_tokens ({1}), got {0}",
    ),
    Rule(
        "engine.gpus",
        ("engine.replicas", "engine.tensor_parallel_size"),
        lambda gpus, replicas, parallel: gpus is not None and len(set(gpus)) != replicas * parallel,
        "must name as many GPUs as engine.replicas ({1}) times engine.tensor_parallel_size ({2}), "
        "each once, got {0}",
    ),
    Rule(
        "engine.gpus",
        ("engine.replicas", "engine.tensor_parallel_size", "engine.nodes"),
        lambda gpus, replicas, parallel, nodes: (
            gpus is None and nodes == 0 and replicas * parallel > 1
        ),
        "is missing: {1} replicas of {2} GPUs need GPUs of their own, e.g. [1, 2]",
    ),
    clash(
        {"engine.gpus": is_set, "engine.nodes": is_positive},
        "has no effect with engine.nodes={1}, whose GPUs are all vLLM's; remove it",
    ),
    Rule(
        "engine.replicas",
        ("engine.nodes",),
        lambda replicas, nodes: nodes > 0 and replicas % nodes != 0,
        "is {0}, but engine.nodes is {1}: each takes the same number of replicas; write a multiple "
        "of {1}",
    ),
    Rule(
        "engine.nodes",
        ("backend.num_nodes", "backend.use"),
        # A cluster's own config has no section `backend`, so this applies only to the original.
        lambda serving, nodes, use: use == "skypilot" and nodes <= serving,
        "is {0}, but backend.num_nodes is {1}: at least one must be left to train; write a larger "
        "backend.num_nodes",
    ),
    Rule(
        "engine.extra",
        (),
        lambda extra: bool(OWN_OPTIONS & {key.replace("-", "_") for key in extra}),
        "holds an option that this program sets itself ({0}); use the keys of engine",
    ),
    clash(
        {"engine.sync": "adapter", "model.adapter": None},
        "is adapter, but model.adapter is null: all weights are trained, and sent; remove it",
    ),
)
