"""Creation of the policy of step 0: the base, SFT on demonstrations, the adapter."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from art_cli.chat.render import Renderer
from art_cli.config.auto import warms_all
from art_cli.config.sections.sft import SFTConfig
from art_cli.envs.base import Env
from art_cli.envs.tools import schemas_of
from art_cli.errors import Interrupted
from art_cli.models.adapter import chosen_parts
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.rollout.first_episode import offered_tools
from art_cli.runs.beginning import began
from art_cli.runs.checkpoint import (
    MAKE_AGAIN,
    Progress,
    check_weights,
    save_checkpoint,
    write_folder,
)
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import SUMS
from art_cli.system.progress import Report
from art_cli.training.demonstrations import load_demonstrations, texts_of
from art_cli.training.model import Stop, TrainableModel
from art_cli.training.trainers.budget import TokenBudget
from art_cli.training.trainers.build import check_ranks
from art_cli.training.trainers.router_load import check_router
from art_cli.training.trainers.sft import fine_tune
from art_cli.types import Message

WARM_REMEDY = f"If you changed it on purpose, remove its {SUMS}: it is then no checkpoint any more"
SMALL = 10_000_000  # parameters; smaller models run faster on one thread


class WarmStart:
    """Creates the policy of step 0, or loads it if the run has created it before."""

    def __init__(
        self,
        model: TrainableModel,
        run: RunDir,
        report: Report,
        say: Callable[[str], None],
        stop: Stop,
    ) -> None:
        self._cfg = model.experiment
        self._warmup = self._cfg.sft or SFTConfig()
        self._env_class: type[Env] = model.env_class
        self._settings: Any = model.settings
        self._run = run
        self._report = report
        self._say = say
        self._stop = stop

    async def make(self) -> tuple[Policy, Renderer]:
        """Return the policy of step 0 and its renderer.

        Weights that the run created are stored in base/ and checkpoints/0/, and loaded from there
        later. Raises UsageError, before SFT, if the config requires something that the base lacks.
        """
        cfg, run = self._cfg, self._run
        warmup = cfg.sft
        warm_all = warmup is not None and warms_all(warmup, cfg.model)
        made = run.base.exists()
        self._report(
            "loading the model" if made or cfg.model.base != "tiny" else "making the model"
        )
        model_cfg = replace(cfg.model, base=str(run.base)) if made else cfg.model
        if made:
            check_weights(run.base, MAKE_AGAIN)
        elif os.path.exists(os.path.join(cfg.model.base, SUMS)):  # another run's checkpoint
            check_weights(Path(cfg.model.base), WARM_REMEDY)
        demonstrations: list[list[Message]] = []
        if not made and (warmup or cfg.model.base == "tiny"):
            demonstrations = await self._demonstrations()
        tools = await self._tools() if demonstrations else schemas_of(self._env_class)
        policy = load_policy(model_cfg, texts_of(demonstrations, tools), cfg.seed)
        if cfg.model.adapter:
            chosen_parts(policy.base, cfg.model.adapter.target_modules)
        check_router(policy.base, cfg.train.router_aux_loss_coef)
        _limit_threads(policy)
        if slower := policy.ways.in_words(embedded=cfg.engine.use == "transformers"):
            self._say(f"{type(policy.base).__name__}: {slower}: exact, and slower")
        check_ranks(cfg, policy)
        policy.recompute_layers(cfg.train.gradient_checkpointing)
        renderer = Renderer(
            policy.tokenizer,
            tools,
            policy.eos_token_ids,
            cfg.model.tool_format,
            cfg.model.template_args,
            began(run),
        )
        if warmup and warm_all and not made:
            self._warm_up(policy, renderer, demonstrations)
        if not made and (warm_all or cfg.model.base == "tiny"):
            policy.base.name_or_path = str(run.base)
            write_folder(run.base, policy.save)
        if cfg.model.adapter:
            policy.add_adapter(cfg.model.adapter, cfg.seed)
        if warmup and not warm_all:
            await self._warm_adapter(policy, renderer, demonstrations)
        if cfg.train.kl_coef:
            policy.keep_reference()
        return policy, renderer

    async def _demonstrations(self) -> list[list[Message]]:
        """Load demonstrations in a thread: the env may run an event loop to play them."""
        self._report("making demonstrations")
        return await asyncio.to_thread(
            load_demonstrations,
            self._warmup.demonstrations,
            self._env_class,
            self._settings,
            self._warmup.num_demonstrations,
        )

    async def _warm_adapter(
        self, policy: Policy, renderer: Renderer, demonstrations: list[list[Message]]
    ) -> None:
        first = self._run.checkpoint(0)
        if first.exists():
            check_weights(first, MAKE_AGAIN)
            return policy.load(first)
        if not demonstrations:  # the run was stopped after it had saved the base
            demonstrations = await self._demonstrations()
            renderer = renderer.offering(await self._tools())
        self._warm_up(policy, renderer, demonstrations)
        save_checkpoint(self._run, policy, None, Progress())
        return None

    async def _tools(self) -> list[dict[str, Any]]:
        return await offered_tools(self._env_class, self._settings)

    def _warm_up(
        self, policy: Policy, renderer: Renderer, demonstrations: list[list[Message]]
    ) -> None:
        cfg = self._cfg
        steps = fine_tune(
            policy,
            renderer,
            demonstrations,
            self._warmup,
            cfg.seed,
            TokenBudget(cfg.train.microbatch_tokens, self._say),
            cfg.engine.max_model_len,
            self._say,
        )
        # There may be fewer than sft.num_demonstrations.
        doing = f"warming up on {len(demonstrations):,} demonstrations"
        with closing(steps):
            for step, total, loss in steps:
                self._report(f"{doing}, loss {loss:.3f}", step, total)
                if self._stop.requested:
                    raise Interrupted("stopped during SFT; it goes on with --resume")


def _limit_threads(policy: Policy) -> None:
    if sum(p.numel() for p in policy.base.parameters()) < SMALL:
        torch.set_num_threads(1)
