"""Our side of `vs_trl.py`: the public `TrainableModel`, driven as `art_cli/loop.py` drives it."""

from __future__ import annotations

from pathlib import Path

import torch
from setting import (
    CLIP_HIGH,
    CLIP_LOW,
    GROUP_SIZE,
    MAX_GRAD_NORM,
    MAX_TOKENS,
    SCENARIOS_PER_STEP,
    Clock,
    Step,
)

import art_cli as art
from art_cli.chat.turns import Turn
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.envs.returned import opening_of
from art_cli.rollout import agent as turns
from art_cli.rollout.policy_agent import PolicyAgents
from art_cli.training.curriculum.uniform import Uniform
from art_cli.training.metrics import batch_metrics
from art_cli.types import ToolCall
from art_envs.order_desk import OrderDesk

WARMUP = art.SFTConfig(
    num_demonstrations=1600, epochs=4, batch_size=8, learning_rate=5.0e-3, optimizer="muon"
)


def as_trl_reads(turn: Turn, *, cut_off: bool = False) -> list[ToolCall | str]:
    """The tool calls of a turn by TRL's rule: if one is broken or not closed, all is an answer.

    `art run` lets the model read what is wrong with it, and makes no calls of a turn that was cut
    off (`art_cli.rollout.agent.calls_in`); that would be another task.
    """
    whole = turn.said.count("<tool_call>") == turn.said.count("</tool_call>")
    return turn.calls if whole and not any(isinstance(c, str) for c in turn.calls) else []


turns.calls_in = as_trl_reads


def progress(text: str, done: int | None = None, total: int | None = None) -> None:
    """A line now and then."""
    if done is None or done == total or done % 100 == 0:
        print(f"  {text}" + ("" if done is None else f" ({done} of {total})"), flush=True)


async def warm_start(root: Path, seed: int, env: type[OrderDesk] = OrderDesk) -> Path:
    """The tiny model after its SFT on the desk's demonstrations, as a HF folder."""
    async with art.LocalBackend(root, report=progress) as backend:
        model = art.TrainableModel(
            name=f"warm-{seed}",
            project="bench",
            base_model=art.ModelConfig(base="tiny", adapter=None),
            env=env,
            sft=WARMUP,
            seed=seed,
        )
        await model.register(backend)
        return model.parts.run.base


class OurSide:
    """One model in training with our program."""

    def __init__(self, model: art.TrainableModel) -> None:
        self.model = model

    @classmethod
    async def make(
        cls,
        backend: art.LocalBackend,
        name: str,
        base: Path,
        env: type[art.Env],
        learning_rate: float,
        seed: int,
        *,
        stops: bool = True,
    ) -> OurSide:
        """From the warm-started folder. Without `stops`, each turn has exactly MAX_TOKENS."""
        model = art.TrainableModel(
            name=name,
            project="bench",
            base_model=art.ModelConfig(base=str(base), adapter=None),
            env=env,
            sampling=art.SamplingConfig(max_tokens=MAX_TOKENS),
            train=art.TrainConfig(
                steps=10**6,
                scenarios_per_step=SCENARIOS_PER_STEP,
                group_size=GROUP_SIZE,
                learning_rate=learning_rate,
                max_grad_norm=MAX_GRAD_NORM,
                loss="token_mean",  # over the whole step: TRL calls it dapo
                advantage="group_std",
                clip_low=CLIP_LOW,
                clip_high=CLIP_HIGH,
                max_kl=None,  # TRL has no such bound
            ),
            seed=seed,
        )
        await model.register(backend)
        if not stops:
            cfg, parts = model.experiment, model.parts
            parts.engine = TransformersEngine(parts.policy, cfg.engine, cfg.sampling, frozenset())
            max_len = cfg.engine.max_model_len
            parts.agents = PolicyAgents(parts.engine, parts.renderer, max_len)
        return cls(model)

    def stream(self, num_steps: int) -> list[list[art.Scenario]]:
        """The train scenarios of each step, in the order in which `art run` takes them."""
        stream = Uniform(art.scenarios_of(self.model, "train"), self.model.experiment.seed)
        n = SCENARIOS_PER_STEP
        return [stream.take(i * n, n) for i in range(num_steps)]

    async def openings(self, stream: list[list[art.Scenario]]) -> list[list[art.Message]]:
        """The first messages of every episode, as our env makes them."""
        env, settings = self.model.env_class, self.model.settings
        out: list[list[art.Message]] = []
        for scenario in (s for step in stream for s in step):
            request = await env(scenario, settings).start()
            out.append(opening_of(env(scenario, settings), "start", request))
        return out

    async def step(self, scenarios: list[art.Scenario]) -> Step:
        """One step of the loop: roll out, score, update, sync, gather metrics."""
        clock = Clock()
        groups = await art.gather_trajectory_groups(self.model, scenarios, group_size=GROUP_SIZE)
        rollout = clock.lap()
        metrics = batch_metrics(groups, self.model.step)
        metrics |= await self.model.train(groups)
        return Step(
            rollout=rollout,
            update=clock.lap(),
            sampled=int(metrics["data/tokens_sampled"]),
            reward=metrics["train/reward"],
        )

    async def held_out(self, weights: dict[str, torch.Tensor] | None = None) -> float:
        """Mean reward on 256 held-out scenarios, of these weights if given (TRL's)."""
        if weights is not None:
            self.model.parts.policy.base.load_state_dict(weights)
        return (await art.evaluate(self.model, episodes=256)).reward
