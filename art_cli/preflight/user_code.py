"""Trial of the user's own code that a config names, before the run costs anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from art_cli.config.load import LoadedExperiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import opponents_saved
from art_cli.config.sections.sft import SFTConfig
from art_cli.engines.user_engine import check_engine_class
from art_cli.envs.base import Env
from art_cli.errors import ConfigError, UsageError
from art_cli.llms.judges.user_judge import check_judge_class
from art_cli.rollout.agents.user_runner import check_agent_class
from art_cli.rollout.env_class import env_of
from art_cli.rollout.groups import scenarios_in
from art_cli.rollout.opponents import check_opponents
from art_cli.runs.directory import RunDir
from art_cli.runs.opponents import saved_opponent
from art_cli.runs.trackers.user_sink import check_tracker_class
from art_cli.types import Split

T = TypeVar("T")


def check_own_code(loaded: LoadedExperiment, run: RunDir | None = None) -> list[str]:
    """Try the code of `train.loss`, `train.advantage`, `train.curriculum` and `env.opponents`.

    Also check the classes of a judge, an agent type, an engine and trackers, and that the env has
    enough demonstrations and scenarios for the config. `run` is a run to resume, whose opponents
    are already fixed. Returns warnings for the user. Raises ConfigError for invalid code,
    CheckpointError for an opponent whose files are damaged. torch, which takes seconds to import,
    is imported only if a loss, an advantage or a sampler is the user's own.
    """
    cfg, settings = loaded.experiment, loaded.env_settings
    train, told = cfg.train, list(too_few_scenarios(loaded))
    if run is None:
        key = "sft.demonstrations" if cfg.sft else "model.base"
        located(loaded, key, lambda: _check_demonstrations(cfg))
    if ":" in train.loss:
        from art_cli.training.algorithm.loss import loss_named

        located(loaded, "train.loss", lambda: loss_named(train.loss))
    if ":" in train.advantage:
        from art_cli.training.algorithm.advantage import try_advantage

        doubt = located(loaded, "train.advantage", lambda: try_advantage(train.advantage))
        told += [doubt] if doubt else []
    if ":" in train.curriculum:
        located(loaded, "train.curriculum", lambda: _try_sampler(loaded))
    for key, check in _classes(cfg):
        located(loaded, key, check)
    opponents = cfg.env.opponents
    located(loaded, "env.opponents", lambda: check_opponents(opponents, env_of(cfg.env), settings))
    for key, who in opponents_saved(opponents).items():
        located(loaded, key, lambda key=key, who=who: saved_opponent(key, who, run))
    return told


def _classes(cfg: Experiment) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the key of each class of the user's own that a section is handed to, and its check."""
    if cfg.judge and ":" in (name := cfg.judge.use):
        yield "judge.use", partial(check_judge_class, name)
    if ":" in (name := cfg.agent.use):
        yield "agent.use", partial(check_agent_class, name)
    if ":" in (name := cfg.engine.use):
        yield "engine.use", partial(check_engine_class, name)
    for name, custom in cfg.track.custom.items():
        yield f"track.custom.{name}", partial(check_tracker_class, name, custom)


def _check_demonstrations(cfg: Experiment) -> None:
    """Raise UsageError if the run needs the env's demonstrations and the env defines none."""
    sft, own = cfg.sft or SFTConfig(), env_of(cfg.env).demonstrations
    is_needed = cfg.sft is not None or cfg.model.base == "tiny"
    if is_needed and sft.demonstrations == "env" and _is_default(own):
        why = "" if cfg.sft else ", from which model.base: tiny trains its tokenizer"
        raise UsageError(
            f"{env_of(cfg.env).__name__} has no demonstrations{why}; override demonstrations(), or "
            "give a JSONL file in sft.demonstrations"
        )


def _is_default(method: Any) -> bool:
    own: Any = Env.demonstrations
    return getattr(method, "__func__", None) is own.__func__  # a static method has none


def too_few_scenarios(loaded: LoadedExperiment) -> Iterator[str]:
    """Yield a warning for each setting that exceeds the number of scenarios in its split."""
    cfg = loaded.experiment
    wanted: list[tuple[str, Split, int, str]] = []
    if cfg.train.steps:
        num = cfg.train.scenarios_per_step
        more = "a batch holds some of them several times"
        wanted.append(("train.scenarios_per_step", "train", num, more))
    if cfg.eval:
        more = "each is played once"
        wanted.append(("eval.episodes", cfg.eval.split, cfg.eval.episodes, more))
    for key, split, num, more in wanted:
        found = len(scenarios_in(env_of(cfg.env), loaded.env_settings, split, num))
        if found < num:
            yield f"{key} is {num}, but the env has {found} {split} scenarios: {more}"


def _try_sampler(loaded: LoadedExperiment) -> None:
    from art_cli.training.curriculum.build import try_sampler

    cfg = loaded.experiment
    scenarios = scenarios_in(env_of(cfg.env), loaded.env_settings, "train")
    try_sampler(cfg.train.curriculum, scenarios, cfg.seed, cfg.train.scenarios_per_step)


def located(loaded: LoadedExperiment, key: str, find: Callable[[], T]) -> T:
    """Return what `find` returns. Raise its UsageError as a ConfigError with the key's place."""
    try:
        return find()
    except UsageError as e:
        at, _, message = str(e).partition(": ")  # the key itself, or one below it
        below = at == key or at.startswith(f"{key}.")
        problem = loaded.problem(*((at, message) if below else (key, str(e))))
        raise ConfigError([str(problem)], problem.pointed()) from None
