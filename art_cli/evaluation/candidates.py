"""The candidates of an evaluation, from their names on a command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from art_cli.config.credentials import written_credentials
from art_cli.config.explain import read_into
from art_cli.config.problem import dotted
from art_cli.config.schema import Experiment
from art_cli.config.sections.llm import LLMConfig
from art_cli.config.yaml_values import read_yaml
from art_cli.errors import UsageError, did_you_mean
from art_cli.runs.checkpoint import find_checkpoint
from art_cli.runs.directory import RunDir

Source = Literal["start", "checkpoint", "base", "llm", "random"]
RANDOM = "random"
ANYWHERE = ("untrained", "base", RANDOM)
WORDS = (*ANYWHERE, "best", "last")
SEPARATOR = re.compile(r",(?=[A-Za-z_][\w.]*=)")
EXAMPLE = '"openai/NAME,api_base=http://127.0.0.1:8000/v1,prices.input=0,prices.output=0"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One column of the comparison."""

    name: str  # as the user wrote it; for a model, without its settings
    source: Source
    step: int | None = None  # of a checkpoint
    llm: LLMConfig | None = None  # for a model behind an API

    @property
    def is_weights(self) -> bool:
        """True if the candidate is a policy with weights to load."""
        return self.source not in ("llm", "random")


def default_names(
    run: RunDir | None, is_run: bool, checkpoints: list[str], named: list[str]
) -> list[str]:
    """Return the names of all candidates, in order.

    For a config, these are the `named`. A run adds its untrained policy and its best checkpoint (or
    `checkpoints`), unless its own policies are among the named.
    """
    own = ["untrained", *(checkpoints or ["best"])] if run else ["untrained"]
    if checkpoints and not run:
        raise UsageError("there is no run yet, so there is no checkpoint; leave out --checkpoint")
    if not named:
        return own
    if checkpoints or (is_run and all(name == RANDOM or "/" in name for name in named)):
        return [*own, *(name for name in named if name not in own)]
    return named


def find_candidates(names: list[str], cfg: Experiment, run: RunDir | None) -> list[Candidate]:
    """Return the candidates for these names, without duplicates.

    Raises UsageError, which lists the possible names.
    """
    found = [_candidate(name, cfg, run) for name in dict.fromkeys(names)]
    twice = {c.name for c in found if [d.name for d in found].count(c.name) > 1}
    return [
        replace(c, name=name) if c.name in twice else c
        for c, name in zip(found, dict.fromkeys(names), strict=True)
    ]


def baseline_of(candidates: list[Candidate], name: str | None) -> str:
    """Return the name of the candidate to compare with, by default the first.

    Raises UsageError.
    """
    names = [c.name for c in candidates]
    if name is None or name in names:
        return name or names[0]
    raise UsageError(
        f"--baseline {name}: not among the candidates.{did_you_mean(name, names)} They are "
        f"{', '.join(names)}"
    )


def _candidate(name: str, cfg: Experiment, run: RunDir | None) -> Candidate:
    if "/" in name.partition(",")[0]:
        llm = parse_llm(name)
        return Candidate(name=llm.model, source="llm", llm=llm)
    if name == "untrained":
        return Candidate(name=name, source="start")
    if name == "base":
        if cfg.sft is None:
            raise UsageError("there is no SFT, so `base` is the same as `untrained`")
        return Candidate(name=name, source="base")
    if name == RANDOM:
        return Candidate(name=name, source="random")
    if run and (name in ("best", "last") or name.isdecimal()):
        return Candidate(name=name, source="checkpoint", step=find_checkpoint(run, name))
    steps = list(map(str, run.checkpoint_steps())) if run else []
    there = [w for w in (*WORDS, *steps) if run or w in ANYWHERE]
    raise UsageError(
        f"there is no candidate {name!r}.{did_you_mean(name, there)} Expected "
        f"{', '.join(there)}, "
        f"or a model as litellm names it, provider/model: openai/gpt-4.1; a server of your own is "
        f"{EXAMPLE}"
    )


def parse_llm(text: str, option: str = "--candidate") -> LLMConfig:
    """Parse a model with settings, such as `openai/NAME,api_base=http://...,params.temperature=0`.

    The keys are those of LLMConfig, the config of a judge or another model, dotted if nested.
    Raises UsageError with all mistakes.
    """
    model, *settings = SEPARATOR.split(text)
    data: dict[str, Any] = {"model": model}
    for setting in settings:
        key, _, value = setting.partition("=")
        *path, last = key.split(".")
        inner = data
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{option} {model}: {key} is inside {part}, which is a value")
        try:
            inner[last] = read_yaml(value)
        except ValueError:
            inner[last] = value
    cfg = read_into(LLMConfig, data, f"{option} {model}")
    if found := next(written_credentials(data), None):
        raise UsageError(
            f"{option} {model}: {dotted(found.path)} holds a key or a password, which would be "
            "in your shell's history; name the variable that holds it: api_key_env=MY_KEY"
        )
    if cfg.command and cfg.api_base:
        raise UsageError(f"{option} {model}: command starts a server; leave out api_base")
    return cfg
