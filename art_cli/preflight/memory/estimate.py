"""The GPU memory of a run, by arithmetic. Pure: no model, no GPU, no torch.

There are two moments that matter. In a *rollout* the engine holds keys and values of many episodes
beside the weights; in an *update* the trainer holds what one microbatch leaves for the backward.
Each part is given with what is certain (weights, whatever is sampled) and at the most (every
episode as long as `engine.max_model_len` allows).

Sizes are bytes. H, F, V: hidden size, that of the MLP, vocabulary; Q and K: width of all query
heads and of all key heads; L: layers; b: bytes of a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from art_cli.preflight.memory.dimensions import Shape

GIB = 2**30
CUDA = 1 * GIB  # context, cuBLAS workspaces, and what the allocator cannot use
HEAD_CHUNK = 2**25  # logits alive at once in an update (logprobs.py)
PREFILL_TOKENS = 16384  # of one forward in a rollout (engines/embedded/rows.py)
GROWTH = 4 / 3  # a KV cache that grows is copied: keys first, then values
VLLM_WORKING = 2 * GIB  # its profiled activations and CUDA graphs: 1 to 3 as vLLM logs them
VLLM_ASLEEP = 1.5 * GIB  # what it keeps while it sleeps: its context and graphs
BYTES_QUANTIZED = {  # LLM.int8 (2208.07339); NF4, its constants quantized too (2305.14314)
    "8bit": 1.0,
    "4bit": (4 + 0.127) / 8,
}
MOMENT_8BIT = 1 + 4 / 256  # a byte, and a float32 for each block of 256 (2110.02861)

Engine = Literal["transformers", "vllm", "elsewhere"]
Moment = Literal["rollout", "update"]
Fit = Literal["fits", "may run out", "does not fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The demands of a run on each GPU, in plain numbers."""

    rank: int | None  # of the adapter; None trains all weights
    float32: bool = False  # of the weights; else bfloat16
    quantize: Literal["8bit", "4bit"] | None = None
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    microbatch_tokens: int
    checkpointing: bool = False  # of gradients
    num_processes: int = 1  # that share weights and optimizer (FSDP)
    has_reference: bool = False  # a copy of what is trained, for the KL
    is_bounded: bool = False  # train.max_kl: a copy while an optimizer step is taken
    has_twin: bool = False  # another, that rollouts go on with during an update
    engine: Engine = "transformers"
    max_tokens: int = 0  # of one turn
    max_model_len: int
    max_num_seqs: int
    episodes: int  # that are played at once, if the engine takes them all
    num_opponents: int = 0  # checkpoints that play in a game, each on weights of its own
    reference_rows: int = 0  # conversations of a judge or user that is the base itself
    shares_gpu: bool = True  # engine and trainer take turns on one GPU
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None  # None: nine tenths of what is free

    @property
    def weight_bytes(self) -> int:
        """b: of what is computed with."""
        return 4 if self.float32 else 2

    @property
    def rows(self) -> int:
        """Episodes that hold a KV cache at once."""
        return min(self.max_num_seqs, self.episodes)

    @property
    def trained_bytes(self) -> int:
        """Bytes of a trained weight; an adapter is float32."""
        return self.weight_bytes if self.rank is None else 4

    @property
    def moments(self) -> float:
        """Bytes of AdamW's two, which have the type of what is trained."""
        return 2 * (self.trained_bytes if self.optimizer == "adamw" else MOMENT_8BIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of the estimate."""

    name: str
    note: str = ""
    rollout: float = 0.0  # at most
    update: float = 0.0
    rollout_least: float | None = None  # certain; None: all of it
    update_least: float | None = None
    is_short: bool = False  # it cannot do with what the config gives it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The memory that a run takes of one GPU, and whether that is there."""

    parts: tuple[Part, ...]
    gpu: int | None  # bytes of the GPU that it is held against

    def total(self, moment: Moment) -> float:
        """Return the most bytes that are held at a moment."""
        return sum(getattr(part, moment) for part in self.parts)

    def least(self, moment: Moment) -> float:
        """Return the bytes that are held at a moment whatever is sampled."""
        certain = ((getattr(p, f"{moment}_least"), getattr(p, moment)) for p in self.parts)
        return sum(most if least is None else least for least, most in certain)

    def fit(self, moment: Moment) -> Fit | None:
        """Return whether a moment fits; None where there is no GPU to hold it against."""
        if self.gpu is None:
            return None
        if moment == "rollout" and any(part.is_short for part in self.parts):
            return "does not fit"
        if self.total(moment) <= self.gpu:
            return "fits"
        return "may run out" if self.least(moment) <= self.gpu else "does not fit"

    @property
    def worst(self) -> Fit | None:
        """The worse of both moments."""
        fits = [self.fit("rollout"), self.fit("update")]
        order: tuple[Fit, ...] = ("does not fit", "may run out", "fits")
        return next((fit for fit in order if fit in fits), None)


def estimate(shape: Shape, job: Workload, gpu: int | None = None) -> MemoryEstimate:
    """The parts of one GPU's memory: the trainer's, and the engine's where it shares the GPU.

    With an engine on GPUs of its own, `rollout` is what one of those holds.
    """
    ours = list(_trainer(shape, job))
    if not job.shares_gpu:
        ours = [replace(part, rollout=0.0) for part in ours]
    makers = {"vllm": _vllm(shape, job, gpu), "transformers": _embedded(shape, job)}
    engine = makers.get(job.engine, ())  # a server of someone else's takes nothing here
    working = Part(name="working memory", update=_working(shape, job), update_least=0.0)
    cuda = Part(name="CUDA", rollout=CUDA, update=CUDA)
    return MemoryEstimate(parts=(*ours, *engine, _activations(shape, job), working, cuda), gpu=gpu)


def num_trained(shape: Shape, job: Workload) -> int:
    """Return what the optimizer changes: all, or A [r, in] and B [out, r] of each adapted map."""
    return shape.num_params if job.rank is None else job.rank * shape.linear_sides


def weights(shape: Shape, job: Workload) -> float:
    """The base: b for each parameter; where it is quantized, less for those of the linear maps."""
    if job.quantize is None:
        return shape.num_params * job.weight_bytes
    rest = shape.num_params - shape.num_linear
    return rest * job.weight_bytes + shape.num_linear * BYTES_QUANTIZED[job.quantize]


def checkpoint(shape: Shape, job: Workload) -> float:
    """One on disk: what is trained, and the optimizer's two moments of it."""
    return num_trained(shape, job) * (job.trained_bytes + job.moments)


def saved_per_token(shape: Shape, job: Workload) -> int:
    """Bytes that autograd keeps of one token in one layer, counted tensor by tensor in decoder.py.

    norms       x and a scale: 2bH + 8, and of heads' norms b(Q+K) + 4 for each head. In a mixture
                of experts they are transformers': x in float32, 8H and 4(Q+K); to train a norm's
                own weight also its result before that: 2bH, b(Q+K)
    linear      to train a map or an adapter on it, its input: of q, k and v bH, of gate and up bH,
                of down bF (that of o is attention's result). Of an adapter the rank-r product of
                each of seven maps: 7br. On a quantized base it is PEFT's, which casts each map's
                input: 4(5H+Q+F) + 28r
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
    has_mlp = f > 0  # one that all tokens go through; what routed experts keep is counted
    inputs = 2 if has_mlp or job.rank is None else 1
    return kept + b * (inputs * h + f) + b * (7 if has_mlp else 4) * (job.rank or 0)


def _saved_by_experts(shape: Shape, job: Workload) -> int:
    """The same of routed experts: k copies of a token.

    gate, its SiLU and up 3bkI; what each says, for its weight in the sum, bkH. To train them or an
    adapter on them, the inputs of both maps: bkH + bkI, and the rank-r products 2bkr. The router:
    logits and probabilities 8E, the choice and its weights 16k.
    """
    k, width, b = shape.experts_per_token, shape.expert_width, job.weight_bytes
    kept = b * k * (3 * width + shape.hidden) + 8 * shape.experts + 16 * k
    if job.rank is None or shape.routed_sides:
        kept += b * k * (shape.hidden + width + 2 * (job.rank or 0))
    return kept


def _copies(shape: Shape, job: Workload) -> float:
    """An adapter's copies of one layer: in the type, on experts in the order, of the product."""
    if job.rank is None:
        return 0.0
    sides = shape.routed_sides if job.float32 else shape.linear_sides
    return job.rank * sides * job.weight_bytes / shape.num_layers


def _trainer(shape: Shape, job: Workload) -> Iterator[Part]:
    """Return what the trainer holds from the first update on."""
    trained, ranks = num_trained(shape, job), job.num_processes
    whole = ranks > 1 and job.engine == "transformers"  # rank 0's, that the engine samples from
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
    """Return what the forward of one microbatch leaves: all layers' tensors; with checkpointing one
    residual bH a layer, and one layer's tensors, made again in the backward (1604.06174).

    A layer's are those of saved_per_token and, where siblings share a prefix, the mask of what each
    may look at, b for each pair of tokens. When they are gone, and a step is bounded, what is
    trained is held as it was before.
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
    """The memory that comes and goes in an update: gradients inside one MLP; a chunk of logits in
    float32 and its gradient; the mask as it is made, a byte for each pair of tokens; the layer and
    the embeddings that FSDP has gathered; a linear map that was quantized, in bfloat16.
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
    """The engine that shares the trainer's weights: its cache, the prefill's MLP and mask, and
    logits [rows, V] in five widths (34 bytes)."""
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
    """One rectangle of keys and values, as wide as the longest episode."""
    if rows:
        most = rows * job.max_model_len * shape.kv_bytes * job.weight_bytes / 2 * GROWTH
        note = f"{rows} x {job.max_model_len} tokens"
        yield Part(name=name, note=note, rollout=most, rollout_least=0.0)


def _vllm(shape: Shape, job: Workload, gpu: int | None) -> Iterator[Part]:
    """vLLM takes a fraction of the GPU, whatever it needs; it must at least hold the weights and
    one sequence of max_model_len, or it refuses to start. While the trainer updates, it sleeps."""
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
    """The fraction that vLLM is given where the config names none, before the first update."""
    held = weights(shape, job) + 4 * num_trained(shape, job) * (job.rank is not None) + CUDA
    return 0.9 * max(0.0, 1 - held / gpu) if job.shares_gpu else 0.9


def _count(number: int) -> str:
    return f"{number / 1e9:.2f}B" if number >= 1e9 else f"{number / 1e6:.1f}M"
