"""Advice on settings that would make a run fit. Pure, like estimate.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from art_cli.preflight.memory.dimensions import Shape
from art_cli.preflight.memory.estimate import Moment, Workload, estimate

FEWEST_TOKENS, SHORTEST, FEWEST_ROWS = 1024, 2048, 4  # smaller values are not advised


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a setting that lowers the memory need."""

    path: str  # config key
    value: str
    job: Workload  # the workload after the change


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Advice to make one moment fit.

    Any one of `changes` is enough, or with `needs_all` all of them together. If even that is not
    enough, `still` is set.
    """

    moment: Moment
    changes: tuple[Change, ...]
    needs_all: bool = False
    still: float | None = None  # maximum bytes with all changes, if still too much


Steps = Callable[[Workload], Iterable[tuple[str, Workload]]]  # mildest first


def _to(attribute: str, *values: Any) -> Steps:
    return lambda job: [(str(value), replace(job, **{attribute: value})) for value in values]


def _halved(attribute: str, least: int) -> Steps:
    def steps(job: Workload) -> Iterator[tuple[str, Workload]]:
        value = getattr(job, attribute) // 2
        while value >= least:
            yield str(value), replace(job, **{attribute: value})
            value //= 2

    return steps


def _shorter(job: Workload) -> Iterable[tuple[str, Workload]]:
    """Yield shorter maximum lengths that still have room for a turn and its prompt."""
    return _halved("max_model_len", max(SHORTEST, 2 * job.max_tokens))(job)


def _shared_out(attribute: str, note: str = "") -> Steps:
    """Yield larger numbers of GPUs, for users who have more than one."""
    return lambda job: (
        []
        if job.shares_gpu
        else [(f"{n}{note}", replace(job, **{attribute: n})) for n in (2, 4, 8)]
    )


def _apart(job: Workload) -> Iterator[tuple[str, Workload]]:
    """Yield a separate GPU for the engine."""
    if job.engine == "vllm" and job.shares_gpu:
        yield "[1]", replace(job, shares_gpu=False)


def _with_adapter(job: Workload) -> Iterator[tuple[str, Workload]]:
    if job.rank is None:
        yield "{rank: 16, alpha: 32}", replace(job, rank=16, float32=False)


def _quantized(job: Workload) -> Iterator[tuple[str, Workload]]:
    """Yield quantized bases, only with an adapter: quantized weights cannot be trained."""
    note = " (with engine.sync: adapter)" if job.engine == "vllm" else ""
    for bits in ("8bit", "4bit") if job.rank is not None else ():
        yield f"{bits}{note}", replace(job, quantize=bits)


# Ordered by cost: first time, then the length of episodes, then precision.
KNOBS: tuple[tuple[str, Steps], ...] = (
    (
        "train.gradient_checkpointing",
        lambda job: [("on", replace(job, checkpointing=True))],
    ),
    ("train.microbatch_tokens", _halved("microbatch_tokens", FEWEST_TOKENS)),
    (
        "engine.gpu_memory_utilization",
        _to("gpu_memory_utilization", *(n / 20 for n in range(19, 1, -1))),
    ),
    ("engine.max_num_seqs", _halved("max_num_seqs", FEWEST_ROWS)),
    (
        "engine.tensor_parallel_size",
        _shared_out("tensor_parallel_size", " (GPUs of the engine)"),
    ),
    ("engine.gpus", _apart),
    ("train.num_processes", _shared_out("num_processes")),
    ("engine.max_model_len", _shorter),
    ("model.adapter", _with_adapter),
    ("train.optimizer", _to("optimizer", "adamw_8bit")),
    ("model.quantize", _quantized),
)


def advise(shape: Shape, job: Workload, gpu: int, known: Collection[str]) -> list[Advice]:
    """Return advice for each moment that may not fit. Only settings in `known` are changed."""
    moments: tuple[Moment, ...] = ("rollout", "update")
    return [
        _advise(shape, job, gpu, known, moment)
        for moment in moments
        if estimate(shape, job, gpu).fit(moment) != "fits"
    ]


def _advise(
    shape: Shape, job: Workload, gpu: int, known: Collection[str], moment: Moment
) -> Advice:
    knobs = [(path, steps) for path, steps in KNOBS if path in known]

    def first_that_fits(job: Workload, path: str, steps: Steps) -> Change | None:
        for text, changed in steps(job):
            if estimate(shape, changed, gpu).fit(moment) == "fits":
                return Change(path=path, value=text, job=changed)
        return None

    alone = [change for knob in knobs if (change := first_that_fits(job, *knob))]
    if alone:
        return Advice(moment=moment, changes=tuple(alone))
    together: list[Change] = []
    for path, steps in knobs:
        if enough := first_that_fits(job, path, steps):
            return Advice(moment=moment, changes=(*together, enough), needs_all=True)
        for text, changed in list(steps(job))[-1:]:  # the strongest step, if it helps
            before, after = (estimate(shape, j, gpu).total(moment) for j in (job, changed))
            if after < before:
                together.append(Change(path=path, value=text, job=changed))
                job = changed
    still = estimate(shape, job, gpu).total(moment)
    return Advice(moment=moment, changes=tuple(together), needs_all=True, still=still)
