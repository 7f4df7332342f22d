"""Forecast whether an experiment fits on a GPU, and which config lines to change if not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, get_args

from art_cli.config.auto import dtype_of, recomputes
from art_cli.config.load import LoadedExperiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.env import opponents_saved
from art_cli.config.sections.llm import REFERENCE
from art_cli.config.sections.model import AdapterConfig
from art_cli.errors import PreflightError
from art_cli.llms.services import needs_reference
from art_cli.preflight.memory.advice import KNOBS, Advice, Change, advise
from art_cli.preflight.memory.dimensions import Shape
from art_cli.preflight.memory.estimate import GIB, Engine, MemoryEstimate, Workload, estimate
from art_cli.preflight.memory.gpus import Gpu
from art_cli.preflight.memory.shape import UnknownSizeError, shape_of_base


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The memory that a run would need on a GPU. Without `gpu`, nothing is compared."""

    base: str
    gpu: Gpu | None
    job: Workload
    shape: Shape | None = None  # None: the base's dimensions are unknown
    estimate: MemoryEstimate | None = None  # None: likewise
    unknown: str = ""  # why they are unknown
    advice: tuple[Advice, ...] = ()
    origins: dict[str, str]
    document: dict[str, Any]

    @property
    def is_impossible(self) -> bool:
        """True if the run certainly does not fit."""
        return self.estimate is not None and self.estimate.worst == "does not fit"

    def as_json(self) -> dict[str, Any]:
        """Return the forecast as JSON values."""
        gpu = self.gpu and {"name": self.gpu.name, "bytes": self.gpu.size}
        if self.estimate is None:
            return {"base": self.base, "gpu": gpu, "unknown": self.unknown}
        return {
            "base": self.base,
            "gpu": gpu,
            "rollout": self.estimate.fit("rollout"),
            "update": self.estimate.fit("update"),
            "parts": [asdict(part) for part in self.estimate.parts],
            "advice": [
                {
                    "moment": a.moment,
                    "needs_all": a.needs_all,
                    "still": a.still,
                    "changes": [self._change(c) for c in a.changes],
                }
                for a in self.advice
            ],
        }

    def lines(self) -> Iterator[str]:
        """Yield the text for the user: what does not fit, and what to change."""
        if self.estimate is None or self.gpu is None:
            return
        for a in self.advice:
            least, most = self.estimate.least(a.moment), self.estimate.total(a.moment)
            sizes = f"{least / GIB:.1f} to {most / GIB:.1f} GiB of {self.gpu.size / GIB:.1f}"
            yield f"the {a.moment} {self.estimate.fit(a.moment)}: {sizes}. {_how(a)}"
            rows = [self._change(change) for change in a.changes]
            width = max((len(row["where"]) for row in rows), default=0)
            for row in rows:
                setting = f"{row['path']}: {row['to']}"
                yield f"  {row['where']:<{width}}  {setting}   (now {row['from']})"

    def _change(self, change: Change) -> dict[str, str]:
        origin = self.origins[change.path]
        value: Any = self.document
        for key in change.path.split("."):
            value = value[key]
        return {
            "path": change.path,
            "from": "null" if value is None else str(value),
            "to": change.value,
            "where": {"default": "add it", "override": "command line"}.get(origin, origin),
        }


def forecast(loaded: LoadedExperiment, gpu: Gpu | None) -> Forecast | None:
    """Return the forecast, or None for a tiny model, which always fits.

    Reads config.json of the base, if necessary over the network. Raises UsageError if there is no
    such model.
    """
    cfg = loaded.experiment
    if cfg.model.base == "tiny":
        return None
    found = {
        "base": cfg.model.base,
        "gpu": gpu,
        "origins": loaded.origins,
        "document": loaded.document,
    }
    try:
        adapter = cfg.model.adapter or AdapterConfig()
        shape = shape_of_base(cfg.model.base, adapter.target_modules)
    except UnknownSizeError as e:
        return Forecast(**found, job=job_of(cfg, loaded.env_settings, None), unknown=str(e))
    job = job_of(cfg, loaded.env_settings, shape)
    size = gpu.size if gpu else None
    known = {path for path, _ in KNOBS if path in loaded.origins}
    advice = advise(shape, job, size, known) if size else []
    return Forecast(
        **found, job=job, shape=shape, estimate=estimate(shape, job, size), advice=tuple(advice)
    )


def check_fit(loaded: LoadedExperiment, gpus: list[Gpu]) -> str | None:
    """Return a warning if the run may run out of memory, before anything is loaded.

    Raises PreflightError if it certainly does not fit on this machine's GPU, UsageError.
    """
    if not gpus or loaded.experiment.model.device == "cpu":
        return None
    found = forecast(loaded, gpus[0])
    if found is None or not found.advice:
        return None
    if found.is_impossible:
        lines = "\n".join(found.lines())
        raise PreflightError(f"{found.base} does not fit on the {gpus[0].name}:\n{lines}")
    first = next(found.lines())
    return f"{first.partition('. ')[0]}; `art validate` says what to change"


def job_of(cfg: Experiment, settings: Any, shape: Shape | None) -> Workload:
    """Return the experiment's demands on the GPU."""
    adapter, train, judge = cfg.model.adapter, cfg.train, cfg.judge
    at_once = max(train.scenarios_per_step * train.group_size, cfg.eval.episodes if cfg.eval else 0)
    if cfg.agent.use != "builtin":
        at_once = min(at_once, cfg.agent.concurrency)
    at_once = min(at_once, cfg.env.concurrency or at_once)
    others = cfg.env.opponents
    seats = (others.train, others.eval) if others else ()
    saved = {(who.checkpoint, who.step) for who in opponents_saved(others).values()}
    asking = at_once if needs_reference(settings) or "start" in seats or saved else 0
    if "policy" in seats:
        at_once *= 2  # one row per seat; most games have two
    if judge and judge.model == REFERENCE:
        asking += train.scenarios_per_step * judge.votes
    size = shape.num_params if shape else 0
    return Workload(
        rank=adapter.rank if adapter else None,
        float32=dtype_of(cfg.model, on_gpu=True) == "float32",
        quantize=cfg.model.quantize,
        optimizer=train.optimizer,
        microbatch_tokens=train.microbatch_tokens,
        checkpointing=recomputes(train.gradient_checkpointing, size, on_gpu=True),
        num_processes=train.num_processes,
        has_reference=train.kl_coef > 0,
        is_bounded=train.max_kl is not None,
        num_opponents=len(saved),
        has_twin="start" in seats or (train.max_staleness > 0 and cfg.engine.use == "transformers"),
        engine=_engine(cfg.engine),
        shares_gpu=cfg.engine.shares_gpu,
        tensor_parallel_size=cfg.engine.tensor_parallel_size,
        gpu_memory_utilization=cfg.engine.gpu_memory_utilization,
        max_tokens=cfg.sampling.max_tokens,
        max_model_len=cfg.engine.max_model_len,
        max_num_seqs=cfg.engine.max_num_seqs,
        episodes=at_once,
        reference_rows=min(asking, cfg.engine.max_num_seqs),
    )


def _engine(cfg: EngineConfig) -> Engine:
    """Return the engine that is counted. One of the user's own takes what it likes: it is not."""
    known = {use: use for use in get_args(Engine)}
    return "elsewhere" if cfg.url else known.get(cfg.use, "elsewhere")


def _how(advice: Advice) -> str:
    if advice.still is not None:
        small = "take a smaller model, or a larger GPU"
        if not advice.changes:
            return f"No setting fixes that: {small}"
        return f"With all of these it is still up to {advice.still / GIB:.1f} GiB, so {small}:"
    if advice.needs_all:
        return "All of these together make it fit:"
    return "Change this:" if len(advice.changes) == 1 else "Any one of these makes it fit:"
