"""Estimate of the GPU memory of a run, by arithmetic. Needs no model, no GPU and no torch.

Two moments matter. In a *rollout* the engine holds keys and values of many episodes beside the
weights. In an *update* the trainer holds the activations of one microbatch for the backward pass.
Each part has a certain size (weights, for example) and a maximum (every episode as long as
`engine.max_model_len`).

Sizes are bytes. H, F, V: hidden size, MLP size, vocabulary. Q and K: width of all query heads and
of all key heads. L: layers. b: bytes of a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from art_cli.preflight.memory.dimensions import Shape

GIB = 2**30
CUDA = 1 * GIB  # context, cuBLAS workspaces, and fragmentation
HEAD_CHUNK = 2**25  # elements of logits held at once in an update (logprobs.py)
PREFILL_TOKENS = 16384  # of one forward in a rollout (engines/embedded/rows.py)
GROWTH = 4 / 3  # growing a KV cache copies it, keys and values in turn
VLLM_WORKING = 2 * GIB  # profiled activations and CUDA graphs: vLLM logs 1 to 3 GiB
VLLM_ASLEEP = 1.5 * GIB  # memory of a sleeping vLLM: its context and graphs
BYTES_QUANTIZED = {  # LLM.int8 (2208.07339); NF4, its constants quantized too (2305.14314)
    "8bit": 1.0,
    "4bit": (4 + 0.127) / 8,
}
MOMENT_8BIT = 1 + 4 / 256  # one byte, and a float32 per block of 256 (2110.02861)

Engine = Literal["transformers", "vllm", "elsewhere"]
Moment = Literal["rollout", "update"]
Fit = Literal["fits", "may run out", "does not fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The demands of a run on each GPU, as plain numbers."""

    rank: int | None  # rank of the adapter; None trains all weights
    float32: bool = False  # dtype of the weights; else bfloat16
    quantize: Literal["8bit", "4bit"] | None = None
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    microbatch_tokens: int
    checkpointing: bool = False  # gradient checkpointing
    num_processes: int = 1  # that share weights and optimizer (FSDP)
    has_reference: bool = False  # a copy of the trained weights, for the KL
    is_bounded: bool = False  # train.max_kl: a copy during each optimizer step
    has_twin: bool = False  # another copy, for rollouts during an update
    engine: Engine = "transformers"
    max_tokens: int = 0  # of one turn
    max_model_len: int
    max_num_seqs: int
    episodes: int  # played at once, if the engine has room for all
    num_opponents: int = 0  # checkpoints that play in a game, each with its own weights
    reference_rows: int = 0  # concurrent conversations of a judge or user that is the base
    shares_gpu: bool = True  # engine and trainer take turns on one GPU
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None  # None: nine tenths of the free memory

    @property
    def weight_bytes(self) -> int:
        """b, the bytes of a weight in a forward pass."""
        return 4 if self.float32 else 2

    @property
    def rows(self) -> int:
        """The number of episodes that hold a KV cache at once."""
        return min(self.max_num_seqs, self.episodes)

    @property
    def trained_bytes(self) -> int:
        """Bytes of a trained weight. An adapter is in float32."""
        return self.weight_bytes if self.rank is None else 4

    @property
    def moments(self) -> float:
        """Bytes of AdamW's two moments per trained weight, in the weight's dtype or 8 bits."""
        return 2 * (self.trained_bytes if self.optimizer == "adamw" else MOMENT_8BIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of the estimate."""

    name: str
    note: str = ""
    rollout: float = 0.0  # maximum
    update: float = 0.0
    rollout_least: float | None = None  # certain part; None: all of it
    update_least: float | None = None
    is_short: bool = False  # the config gives it too little


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The memory that a run needs on one GPU, compared with that GPU."""

    parts: tuple[Part, ...]
    gpu: int | None  # bytes of the GPU; None: no comparison

    def total(self, moment: Moment) -> float:
        """Return the maximum bytes held at a moment."""
        return sum(getattr(part, moment) for part in self.parts)

    def least(self, moment: Moment) -> float:
        """Return the bytes that are certainly held at a moment."""
        certain = ((getattr(p, f"{moment}_least"), getattr(p, moment)) for p in self.parts)
        return sum(most if least is None else least for least, most in certain)

    def fit(self, moment: Moment) -> Fit | None:
        """Return whether a moment fits, or None without a GPU to compare with."""
        if self.gpu is None:
            return None
        if moment == "rollout" and any(part.is_short for part in self.parts):
            return "does not fit"
        if self.total(moment) <= self.gpu:
            return "fits"
        return "may run out" if self.least(moment) <= self.gpu else "does not fit"

    @property
    def worst(self) -> Fit | None:
        """The worse result of both moments, or None without a GPU."""
        fits = [self.fit("rollout"), self.fit("update")]
        order: tuple[Fit, ...] = ("does not fit", "may run out", "fits")
        return next((fit for fit in order if fit in fits), None)


def estimate(shape: Shape, job: Workload, gpu: int | None = None) -> MemoryEstimate:
    """Estimate one GPU's memory: the trainer's parts, and the engine's if it shares the GPU.

    If the engine has its own GPUs, `rollout` is the memory of one of those.
    """
    ours = list(_trainer(shape, job))
    if not job.shares_gpu:
        ours = [replace(part, rollout=0.0) for part in ours]
    makers = {"vllm": _vllm(shape, job, gpu), "transformers": _embedded(shape, job)}
    engine = makers.get(job.engine, ())  # an external server needs no memory here
    working = Part(name="working memory", update=_working(shape, job), update_least=0.0)
    cuda = Part(name="CUDA", rollout=CUDA, update=CUDA)
    return MemoryEstimate(parts=(*ours, *engine, _activations(shape, job), working, cuda), gpu=gpu)


def num_trained(shape: Shape, job: Workload) -> int:
    """Return the number of trained weights: all, or A [r, in] and B [out, r] per adapted map."""
    return shape.num_params if job.rank is None else job.rank * shape.linear_sides


def weights(shape: Shape, job: Workload) -> float:
    """Return the bytes of the base: b per parameter, less for linear maps that are quantized."""
    if job.quantize is None:
        return shape.num_params * job.weight_bytes
    rest = shape.num_params - shape.num_linear
    return rest * job.weight_bytes + shape.num_linear * BYTES_QUANTIZED[job.quantize]


def checkpoint(shape: Shape, job: Workload) -> float:
    """Return the bytes of a checkpoint on disk: trained weights and the two moments of each."""
    return num_trained(shape, job) * (job.trained_bytes + job.moments)


def saved_per_token(shape: Shape, job: Workload) -> int:
    """Return the bytes that autograd stores per token and layer, as counted in decoder.py.

    norms       x and a scale: 2bH + 8, and for head norms b(Q+K) + 4 per head. In a mixture of
                experts the norms are transformers': x in float32, 8H and 4(Q+K). Training a norm's
                own weight also stores its result before the weight: 2bH, b(Q+K)
    linear      training a map or an adapter on it stores its input: of q, k and v bH, of gate and
                up bH, of down bF (that of o is attention's result). An adapter also stores the
                rank-r product of each of seven maps: 7br. On a quantized base the adapter is
                PEFT's, which casts each map's input: 4(5H+Q+F) + 28r
    attention   queries, keys, values and result: 2b(Q+K), and a sum for each head
    MLP         gate, its SiLU and up: 3bF
    """
    h, f, b = shape.hidden, shape.intermediate, job.weight_bytes
    q, k = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    wide = 4 if shape.experts else b
    kept = 2 * wide * h + 2 * 4 + 2 * b * (q + k) + 4 * shape.heads + 3 * b * f
    normed = 2 * h
    if shape.has_head_norms:
        kept += wide * (q + k) + 4 * (shape.heads + shape.kv_heads)
        normed += q + k
    kept += _saved_by_experts(shape, job)
    if shape.experts and job.rank is None:
        kept += b * normed
    if job.rank and job.quantize:
        return kept + 4 * (5 * h + q + f) + 4 * 7 * job.rank
    has_mlp = f > 0  # a dense MLP; routed experts are counted already
    inputs = 2 if has_mlp or job.rank is None else 1
    return kept + b * (inputs * h + f) + b * (7 if has_mlp else 4) * (job.rank or 0)


def _saved_by_experts(shape: Shape, job: Workload) -> int:
    """Return the bytes that routed experts store per token and layer: k copies of a token.

    gate, its SiLU and up 3bkI; each expert's output, for its weight in the sum, bkH. Training them
    or an adapter on them stores the inputs of both maps, bkH + bkI, and the rank-r products, 2bkr.
    The router stores logits and probabilities, 8E, and the choice and its weights, 16k.
    """
    k, width, b = shape.experts_per_token, shape.expert_width, job.weight_bytes
    kept = b * k * (3 * width + shape.hidden) + 8 * shape.experts + 16 * k
    if job.rank is None or shape.routed_sides:
        kept += b * k * (shape.hidden + width + 2 * (job.rank or 0))
    return kept


def _copies(shape: Shape, job: Workload) -> float:
    """Return the bytes of an adapter's copies for one layer: cast, and for experts reordered."""
    if job.rank is None:
        return 0.0
    sides = shape.routed_sides if job.float32 else shape.linear_sides
    return job.rank * sides * job.weight_bytes / shape.num_layers


def _trainer(shape: Shape, job: Workload) -> Iterator[Part]:
    """Yield the parts that the trainer holds from the first update on."""
    trained, ranks = num_trained(shape, job), job.num_processes
    whole = ranks > 1 and job.engine == "transformers"  # rank 0 holds a whole copy for the engine
    base = weights(shape, job) * (1 / ranks + whole)
    dtype = job.quantize or ("float32" if job.float32 else "bfloat16")
    size = _count(shape.num_params)
    active = f", {_count(shape.num_active)} of them a token," if shape.experts else ""
    yield Part(name="weights", note=f"{size}{active} in {dtype}", rollout=base, update=base)
    if job.rank is not None:
        held = trained * 4 / ranks
        note = f"{_count(trained)} in float32, rank {job.rank}"
        yield Part(name="adapter", note=note, rollout=held, update=held)
    if job.num_opponents:
        held = job.num_opponents * weights(shape, job)
        part = Part(name="opponents", note="as large as the base", rollout=held, update=held)
        yield replace(part, rollout_least=0.0, update_least=0.0)
    state = trained * (job.trained_bytes * (1 + job.has_reference) + job.moments) / ranks
    kept = "gradients, two moments" + (", reference" if job.has_reference else "")
    yield Part(name="optimizer", note=kept, rollout=state, update=state)


def _activations(shape: Shape, job: Workload) -> Part:
    """Return the activations of one microbatch's forward pass.

    Without checkpointing these are all layers' tensors. With it, they are one residual bH per
    layer, and one layer's tensors, recomputed in the backward pass (1604.06174).

    A layer's tensors are those of saved_per_token and, if siblings share a prefix, the attention
    mask, b for each pair of tokens. A bounded step later holds a copy of the trained weights
    instead.
    """
    tokens, b = job.microbatch_tokens, job.weight_bytes
    mask = tokens * min(tokens, job.max_model_len) * b
    layer = tokens * saved_per_token(shape, job) + mask + _copies(shape, job)
    kept = layer * shape.num_layers
    if job.checkpointing:
        kept = tokens * shape.num_layers * shape.hidden * b + layer
    note = f"{tokens} tokens{', checkpointed' if job.checkpointing else ''}"
    before = num_trained(shape, job) * job.trained_bytes / job.num_processes * job.is_bounded
    return Part(name="activations", note=note, update=max(kept, before), update_least=before)


def _working(shape: Shape, job: Workload) -> float:
    """Return the bytes of temporary tensors in an update.

    These are gradients inside one MLP, a chunk of logits in float32 and its gradient, the mask
    while it is built (a byte for each pair of tokens), the layer and the embeddings that FSDP has
    gathered, and one dequantized linear map in bfloat16.
    """
    b, tokens = job.weight_bytes, job.microbatch_tokens
    mlp = tokens * shape.mlp_width * (4 + 3 * b)
    head = HEAD_CHUNK * (4 + b) + 2 * tokens * shape.hidden * b
    if job.rank is None:
        head += shape.vocab * shape.hidden * b
    mask = tokens * min(tokens, job.max_model_len)
    gathered = 0.0
    if job.num_processes > 1:
        in_layers = shape.num_linear + shape.num_routed
        gathered = b * (2 * in_layers / shape.num_layers + shape.num_params - in_layers)
    opened = 2 * shape.hidden * shape.intermediate if job.quantize else 0
    return mlp + head + mask + gathered + opened


def _embedded(shape: Shape, job: Workload) -> Iterator[Part]:
    """Yield the parts of the embedded engine, which uses the trainer's weights.

    These are its cache, the prefill's MLP and mask, and logits [rows, V] in five dtypes (34 bytes).
    """
    yield from _cache("KV cache", job.rows, shape, job)
    yield from _cache("KV cache of the reference", job.reference_rows, shape, job)
    b = job.weight_bytes
    tokens = min(PREFILL_TOKENS, job.rows * job.max_model_len)
    prefill = tokens * (3 * b * shape.mlp_width + 8 * shape.hidden)
    prefill += tokens * job.max_model_len * (1 + b)
    sampling = job.rows * shape.vocab * 34
    note = "prefill, sampling"
    yield Part(name="engine", note=note, rollout=max(prefill, sampling), rollout_least=0.0)


def _cache(name: str, rows: int, shape: Shape, job: Workload) -> Iterator[Part]:
    """Yield a rectangle of keys and values, as wide as the longest episode."""
    if rows:
        most = rows * job.max_model_len * shape.kv_bytes * job.weight_bytes / 2 * GROWTH
        note = f"{rows} x {job.max_model_len} tokens"
        yield Part(name=name, note=note, rollout=most, rollout_least=0.0)


def _vllm(shape: Shape, job: Workload, gpu: int | None) -> Iterator[Part]:
    """Yield the part of vLLM.

    vLLM takes a fraction of the GPU, even if it needs less. That must hold the weights and one
    sequence of max_model_len, or vLLM refuses to start. vLLM sleeps during an update.
    """
    b, asleep = job.weight_bytes, VLLM_ASLEEP if job.shares_gpu else 0.0
    episode = job.max_model_len * shape.kv_bytes * b / 2 / job.tensor_parallel_size
    least = shape.num_params * b / job.tensor_parallel_size + episode + VLLM_WORKING
    if job.shares_gpu:
        yield from _cache("KV cache of the reference", job.reference_rows, shape, job)
    if gpu is None:
        note = f"at least: weights and {job.max_model_len} tokens"
        yield Part(name="vllm", note=note, rollout=least, update=asleep)
        return
    fraction = job.gpu_memory_utilization or _free(shape, job, gpu)
    taken = fraction * gpu
    holds = f"{1 + int((taken - least) // episode)} x {job.max_model_len} tokens"
    if is_short := taken < least:
        holds = "too little for weights and one episode"
    yield Part(
        name="vllm",
        note=f"{fraction:.0%} of the GPU, {holds}",
        rollout=max(taken, least),
        update=asleep,
        rollout_least=least,
        is_short=is_short,
    )


def _free(shape: Shape, job: Workload, gpu: int) -> float:
    """Return vLLM's fraction of the GPU before the first update, if the config names none."""
    held = weights(shape, job) + 4 * num_trained(shape, job) * (job.rank is not None) + CUDA
    return 0.9 * max(0.0, 1 - held / gpu) if job.shares_gpu else 0.9


def _count(number: int) -> str:
    return f"{number / 1e9:.2f}B" if number >= 1e9 else f"{number / 1e6:.1f}M"
