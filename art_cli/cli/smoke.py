"""`art run --smoke`: the config of a smoke run, and the report on it."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text

from art_cli.cli import inputs
from art_cli.config.load import LoadedExperiment
from art_cli.config.sections.llm import REFERENCE
from art_cli.config.sections.track import TrackConfig
from art_cli.errors import UsageError
from art_cli.keys import mask_keys_in
from art_cli.llms.services import models_of_env
from art_cli.preflight.smoke import (
    GoldPlay,
    SmokeModel,
    StandIn,
    make_small,
    name_of,
    overrides,
    play_gold,
    render,
    stand_in_for,
)
from art_cli.rollout.env_class import env_of
from art_cli.rollout.first_episode import FirstEpisode
from art_cli.rollout.groups import shown
from art_cli.runs.directory import RunDir
from art_cli.system.files import atomic_write
from art_cli.terminal.screen import Screen
from art_cli.training.demonstrations import load_demonstrations, texts_of


@dataclass(kw_only=True)
class Smoke:
    """A short run with a tiny model that tries all parts of a real run."""

    real: LoadedExperiment  # the experiment that the smoke run stands for
    loaded: LoadedExperiment  # the experiment that runs
    run: RunDir
    stand_in: StandIn
    config: list[str]  # the config arguments as typed
    family: str = "qwen3"
    gold: GoldPlay = field(default_factory=GoldPlay)
    tools: list[dict[str, Any]] = field(default_factory=list)  # of an episode, as JSON schemas
    model_class: ClassVar[type[SmokeModel]] = SmokeModel

    def play_gold(self) -> None:
        """Play the env's gold episode, if it has one."""
        cfg, env = self.real.experiment, env_of(self.real.experiment.env)
        with contextlib.redirect_stdout(sys.stderr):  # the env's output is not part of the report
            self.gold = play_gold(env, cfg, self.real.env_settings)

    def make_model(self, first: FirstEpisode) -> None:
        """Empty the smoke run's directory and write the model that replaces the base."""
        RunDir.replace_smoke(self.run.root)
        self.tools = first.tools
        if self.stand_in.name == "tiny":
            return
        texts = texts_of([first.opening], first.tools)
        self.family = make_small(self.stand_in, texts, self.real.experiment.seed)

    def report(self) -> dict[str, Any]:
        """Return the report: what was tried, what looked odd, what was not tried, and what to do
        next.

        It is also written to the run's directory.
        """
        found: dict[str, Any] = {
            "tried": list(self._tried()),
            "odd": list(self._odd()),
            "not_tried": list(self._not_tried()),
        }
        found["verdict"], found["next"] = self._verdict(len(found["odd"]))
        atomic_write(self.run.smoke, json.dumps(mask_keys_in(found), indent=1))
        return found

    @staticmethod
    def tell(found: dict[str, Any]) -> None:
        """Print a report."""
        screen = Screen()
        for title, style in (("tried", "green"), ("odd", "yellow"), ("not_tried", "bold")):
            if found[title]:
                screen.print(f"\n{title.replace('_', ' ')}", style=style)
            for line in found[title]:
                screen.hang("", Text(line), 3)
        screen.print()
        screen.print(Text(found["verdict"]), style="bold")
        screen.hang("next:", Text(found["next"]), 6)

    def _verdict(self, num_odd: int) -> tuple[str, str]:
        cfg, config = self.real.experiment, shlex.join(self.config)
        if self.gold.odd:
            what = "The env is not ready to train on: its own perfect player does not earn it all"
            return f"{what}.", f"art envs check {shlex.quote(cfg.env.use)}"
        if num_odd:
            things = "one thing was odd" if num_odd == 1 else f"{num_odd} things were odd"
            return (
                f"It runs from end to end, but {things}; look at what was played.",
                f"art show {shlex.quote(str(self.run.root))} 1",
            )
        if cfg.model.base == "tiny" and not cfg.judge:
            return "It works from end to end, and nothing stands in the way.", f"art run {config}"
        return (
            "It works from end to end, with stand-ins; now see that the real ones are there.",
            f"art doctor {config}",
        )

    @property
    def _played(self) -> list[dict[str, Any]]:
        return self.run.read_trajectories(1, "train")

    @property
    def _update(self) -> dict[str, Any]:
        return next(r for r in self.run.read_metrics() if "data/tokens_trained" in r)

    def _tried(self) -> Iterator[str]:
        cfg, update, played = self.real.experiment, self._update, self._played
        turns = max(t["num_turns"] for t in played)
        if self.gold.did:
            yield self.gold.did
        yield f"env: {len(played)} episodes of {cfg.env.use} by the model, up to {turns} turns"
        if cfg.agent.use != "builtin":
            yield f"agent: your {cfg.agent.use}, {len(played)} times"
        if lengths := self._demonstration:
            forks = f" in {len(lengths)} sequences" if len(lengths) > 1 else ""
            yield f"rendering: a demonstration is {sum(lengths)} tokens{forks}, under {self._whose}"
        if cfg.judge:
            yield f"judging: {update['judge/calls']:.0f} answers, read and matched"
        norm = update.get("loss/grad_norm", 0.0)
        tokens = update["data/tokens_trained"]
        flat = not any(t["advantage"] for t in played)
        made_up = ", by made-up rewards, for all siblings earned the same" if flat else ""
        yield f"update: {cfg.train.loss} on {tokens} tokens, gradient norm {norm:.2g}{made_up}"
        if cfg.eval:
            yield f"evaluation: on {cfg.eval.split}, before and after"
        yield f"checkpoint: {self.run.checkpoint(1)}"

    def _odd(self) -> Iterator[str]:
        cfg, played = self.real.experiment, self._played
        if self.gold.odd:
            yield self.gold.odd
        if failed := [t for t in played if t["reward"] is None]:
            why = shown(str(failed[0]["error"]))
            yield f"{len(failed)} of {len(played)} episodes failed, the first with: {why}"
        if crashed := [t for t in played if t.get("crash")]:
            why = shown(crashed[0]["crash"])
            yield f"{len(crashed)} of {len(played)} agents crashed or were too slow: {why}"
        if not self._update["data/tokens_trained"]:
            yield "no token was trained on, so nothing was updated"
        longest, room = max(self._demonstration, default=0), cfg.engine.max_model_len
        if self.stand_in.has_tokenizer and longest > room:
            yield f"a demonstration is {longest} tokens, and engine.max_model_len is {room}"

    def _not_tried(self) -> Iterator[str]:
        cfg = self.real.experiment
        if cfg.model.base != "tiny":
            tokenizer = "" if self.stand_in.has_tokenizer else ", its tokenizer and chat template"
            why = f" ({self.stand_in.missing})" if self.stand_in.missing else ""
            yield (
                f"{cfg.model.base}{tokenizer}: a {self.family} of two layers with random weights "
                f"stood in{why}"
            )
            yield "GPU, memory, speed: art validate --gpu H100"
        if self.gold.not_tried:
            yield self.gold.not_tried
        if cfg.judge:
            ping = "" if cfg.judge.model == REFERENCE else ": art validate --ping"
            yield f"the judge {cfg.judge.model or cfg.judge.use}{ping}"
        for name in models_of_env(cfg.env, self.real.env_settings):
            yield f"the model that the env asks, {name}"
        if cfg.engine.use != "transformers":
            yield f"the engine {cfg.engine.use}"
        if cfg.track != TrackConfig():
            yield "trackers"

    @property
    def _whose(self) -> str:
        if self.stand_in.name == "tiny":
            return "the tiny model's chat template"
        return "its own chat template" if self.stand_in.has_tokenizer else "a stand-in's template"

    @cached_property
    def _demonstration(self) -> list[int]:
        """The numbers of tokens of a demonstration's sequences, empty if the env has none."""
        env = env_of(self.real.experiment.env)
        folder = self.run.base if self.stand_in.name == "tiny" else self.run.stand_in
        try:
            (messages,) = load_demonstrations("env", env, self.real.env_settings, 1)
        except UsageError:
            return []
        return render(messages, folder, self.tools, self.loaded.experiment.model)


def begin(config: list[str], real: LoadedExperiment, runs_dir: Path) -> Smoke:
    """Return the smoke run of `art run CONFIG... --smoke` without writing any file.

    Raise UsageError under the same conditions as the run.
    """
    cfg = real.experiment
    inputs.check_base(real)
    run = RunDir(runs_dir / cfg.project / name_of(cfg.name))
    stand_in = stand_in_for(cfg.model.base, run.stand_in)
    loaded = inputs.load([*config, *overrides(cfg, real.env_settings, stand_in)])
    return Smoke(real=real, loaded=loaded, run=run, stand_in=stand_in, config=config)
