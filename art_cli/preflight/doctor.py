"""Checks that this machine can run the config, reported in order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from huggingface_hub.constants import HF_HUB_CACHE

from art_cli.config.load import LoadedExperiment
from art_cli.config.schema import Experiment
from art_cli.errors import ConfigError, PreflightError, UsageError
from art_cli.llms.judges.build import read_rubric
from art_cli.preflight.check_result import CheckResult, failed, ok, warning
from art_cli.preflight.machine import (
    check_gpus,
    check_machine,
    check_packages,
    check_torch,
    free_disk,
    free_memory,
)
from art_cli.preflight.memory.estimate import Shape, checkpoint, weights
from art_cli.preflight.memory.fit import Forecast, forecast
from art_cli.preflight.memory.gpus import GIB, Gpu, present
from art_cli.preflight.memory.shape import local_config
from art_cli.preflight.services import check_keys, check_servers, models_asked, servers
from art_cli.preflight.user_code import check_own_code
from art_cli.rollout.agents.build import make_runner
from art_cli.runs.trackers.build import check_trackers

CPU_FLOPS = 1e10  # operations per second and core that a small model reaches
LITTLE_DISK = 20 * GIB  # bytes, if the size of a run is unknown


def examine(loaded: LoadedExperiment | None, runs_dir: Path) -> Iterator[CheckResult]:
    """Yield one result after another. A `failed` result means that the config cannot run here."""
    gpus = present()
    cfg = loaded.experiment if loaded else None
    llms = models_asked(cfg, loaded.env_settings) if cfg and loaded else {}
    memory, wrong = None, []
    if loaded:
        on_gpu = loaded.experiment.model.device != "cpu"
        try:
            memory = forecast(loaded, gpus[0] if gpus and on_gpu else None)
            wrong += _check_base(loaded)
        except UsageError as e:
            wrong.append(failed(str(e)))
    found: tuple[tuple[str, Iterable[CheckResult]], ...] = (
        ("machine", check_machine()),
        ("gpu", check_gpus(gpus)),
        ("torch", check_torch(gpus)),
        ("packages", check_packages()),
        ("model", [*wrong, *(_check_model(cfg, memory, gpus) if cfg else ())]),
        ("engine", _check_engine(cfg) if cfg else ()),
        ("disk", _check_disk(cfg, memory, runs_dir)),
        ("programs", _check_programs(cfg) if cfg else ()),
        ("own code", _check_own_code(loaded) if loaded else ()),
        ("trackers", _check_trackers(loaded) if loaded else ()),
        ("keys", check_keys(llms)),
        ("services", check_servers(servers(cfg, llms))),
    )
    for name, results in found:
        for result in results:
            yield replace(result, check=name)


def _check_base(loaded: LoadedExperiment) -> list[CheckResult]:
    """Return the check results of the base's config.json and tokenizer."""
    if loaded.experiment.model.base == "tiny":
        return []
    try:
        from art_cli.preflight.base_model import findings_of
    except (ImportError, OSError):  # torch cannot be imported, which is reported already
        return []
    return [replace(f, what=f"{f.where}: {f.what}") if f.where else f for f in findings_of(loaded)]


def _check_model(
    cfg: Experiment, memory: Forecast | None, gpus: list[Gpu]
) -> Iterator[CheckResult]:
    """Check that the base fits on the GPU, or in memory if there is no GPU."""
    if cfg.model.device == "cuda" and not gpus:
        yield failed("model.device is cuda, and there is no GPU", todo="model.device=auto, or cpu")
    if memory is None:
        return
    if memory.shape is None:
        yield warning(f"its size is unknown: {memory.unknown}")
        return
    yield from _check_memory(cfg, memory, memory.shape)
    if memory.gpu and not memory.advice:
        yield ok(f"{memory.base} fits on the {memory.gpu.name}")
    elif memory.gpu:
        state = failed if memory.is_impossible else warning
        what, *todo = memory.lines()
        yield state(what, todo="; ".join(" ".join(line.split()) for line in todo))


def _check_memory(cfg: Experiment, memory: Forecast, shape: Shape) -> Iterator[CheckResult]:
    """Check the machine's memory: the base is read into it first, and stays there without a GPU."""
    free = free_memory()
    needed = weights(shape, memory.job) if memory.gpu else shape.num_params * 4.0
    if free is not None and needed > free:
        state = warning if memory.gpu else failed  # pages read from a file can be evicted
        sizes = f"{needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB of memory are free"
        todo = "a machine with more memory" + ("" if memory.gpu else ", or one with a GPU")
        yield state(f"{memory.base} is {sizes}", todo=todo)
    elif not memory.gpu:
        hours = _hours_on_cpu(cfg, shape)
        if hours < 1:
            yield ok(f"without a GPU, {memory.base} trains on the CPU, which takes minutes")
        else:
            yield warning(
                f"without a GPU, {memory.base} trains on the CPU, which takes "
                f"{f'about {hours:.0f} hours' if hours < 48 else 'days'} where turns are "
                "sampling.max_tokens long",
                todo="art run --smoke tries the config here; train it where there is a GPU",
            )


def _hours_on_cpu(cfg: Experiment, shape: Shape) -> float:
    """Return an upper bound of the hours that a run takes, from its sampled tokens.

    A token costs 2 operations a parameter to sample and 6 to train on (Kaplan et al. 2020).
    """
    train = cfg.train
    tokens = train.steps * train.scenarios_per_step * train.group_size * cfg.sampling.max_tokens
    return 8 * shape.num_params * tokens / (CPU_FLOPS * (os.cpu_count() or 1)) / 3600


def _check_engine(cfg: Experiment) -> Iterator[CheckResult]:
    """Check that the engine is installed and has its GPUs."""
    try:
        from art_cli.engines.build import check_engine
    except (ImportError, OSError):  # torch cannot be imported, which is reported already
        return
    try:
        check_engine(cfg)
        yield ok(cfg.engine.use)
    except PreflightError as e:
        yield failed(str(e))


def _check_disk(
    cfg: Experiment | None, memory: Forecast | None, runs_dir: Path
) -> Iterator[CheckResult]:
    """Check the disk space for checkpoints, and for a base that must be downloaded."""
    runs = cache = float(GIB if cfg else LITTLE_DISK)
    if cfg and memory and memory.shape:
        # The newest checkpoints, the best one, and the one being written.
        runs += checkpoint(memory.shape, memory.job) * (cfg.checkpoint.keep + 2)
        cache += 0 if local_config(memory.base) else memory.shape.num_params * 2
    for what, folder, needed, todo in (
        ("runs", runs_dir, runs, "--runs-dir FOLDER, on another disk"),
        ("models", Path(HF_HUB_CACHE), cache, "set HF_HOME to a folder on another disk"),
    ):
        free = free_disk(folder)
        line = f"{what} ({folder}): {free / GIB:.0f} GiB free"
        if free >= needed:
            yield ok(line)
        else:
            state = failed if cfg else warning
            yield state(f"{line}, up to {needed / GIB:.0f} are needed", todo=todo)


def _check_trackers(loaded: LoadedExperiment) -> Iterator[CheckResult]:
    """Check that trackers are installed, and that W&B can be used in the configured mode."""
    try:
        check_trackers(loaded)
    except ConfigError as e:
        yield from map(failed, e.problems)
    except PreflightError as e:
        yield failed(str(e))


def _check_own_code(loaded: LoadedExperiment) -> Iterator[CheckResult]:
    """Check the user's own code that the config names."""
    try:
        yield from map(warning, check_own_code(loaded))
    except ConfigError as e:
        yield from map(failed, e.problems)


def _check_programs(cfg: Experiment) -> Iterator[CheckResult]:
    """Check the programs that the config would start, and the judge's rubric."""
    try:
        make_runner(cfg.agent)
        if cfg.judge:
            read_rubric(cfg.judge)
    except (PreflightError, UsageError) as e:
        yield failed(str(e))
    if cfg.agent.use != "builtin":
        who = str(cfg.agent.function or cfg.agent.url or cfg.agent.use)
        where = f" (in {cfg.agent.sandbox})" if cfg.agent.sandbox != "none" else ""
        yield ok(f"agent: {' '.join(cfg.agent.command or [who])}{where}")
    if cfg.judge and cfg.judge.command and "{" not in cfg.judge.command[0]:
        program = cfg.judge.command[0]
        if shutil.which(program) is None:
            yield failed(f"judge.command: there is no program {program!r}")
