"""From real episodes through the real engine to the update: what is trained is what was sampled."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cases import slow_but

from art_cli import Done, Env, Scenario, Trajectory, TrajectoryGroup, tool
from art_cli.chat.render import Renderer
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.model import AdapterConfig, TinyConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.sft import SFTConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.envs.tools import tools_of
from art_cli.errors import EngineError
from art_cli.models import tiny
from art_cli.models.policy import Policy
from art_cli.rollout.policy_agent import PolicyAgent
from art_cli.rollout.rollout import rollout
from art_cli.system.progress import silent
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.trainers.budget import TokenBudget
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.sft import fine_tune
from art_cli.types import Message

QWEN3 = Path(__file__).parents[2] / "templates" / "qwen3.jinja"


class Lookup(Env):
    """Look a key up, say its value, and that twice."""

    system = "Use the tool."
    max_turns = 6

    @tool()
    def look(self, key: str) -> str:
        """The value of a key."""
        self.looked = True
        return f"{key} is {len(key) + 6}"

    async def start(self) -> str:
        """The first key."""
        self.asked, self.looked = 0, False
        return "look up a"

    async def reply(self, text: str) -> str | Done:
        """The second key, then the end."""
        self.asked += 1
        return "look up bb" if self.asked == 1 else Done()

    async def score(self, trajectory: Trajectory) -> float:
        """Something in which siblings differ."""
        self.metrics["turns_seen"] = trajectory.num_turns
        self.metrics["truncated_seen"] = trajectory.truncated
        return self.looked + sum(sum(s.engine_logprobs) for s in trajectory.sequences) / 100


def demonstrations(thinking: bool) -> list[list[Message]]:
    """Calls of the tool, some thought of; with variety, so that samples differ."""
    out: list[list[Message]] = []
    for i in range(12):
        messages: list[Message] = [{"role": "system", "content": Lookup.system}]
        for key in ("a", "bb"):
            thought = f"<think>\nI need {key}\n</think>\n\n" if thinking and i % 3 else ""
            call = f'<tool_call>\n{{"name": "look", "arguments": {{"key": "{key}"}}}}\n</tool_call>'
            value = f"{key} is {len(key) + 6}"
            messages.append({"role": "user", "content": f"look up {key}"})
            messages.append({"role": "assistant", "content": thought + call})
            messages.append({"role": "tool", "content": value})
            messages.append({"role": "assistant", "content": value + "!" * (i % 2)})
        out.append(messages)
    return out


@dataclass
class Setup:
    policy: Policy
    renderer: Renderer


def renderer_of(policy: Policy) -> Renderer:
    schemas = [t.schema() for t in tools_of(Lookup).values()]
    return Renderer(policy.tokenizer, schemas, policy.eos_token_ids)


@pytest.fixture(scope="module", params=["chatml", "qwen3_thinking"])
def speaker(request: pytest.FixtureRequest) -> Policy:
    """A tiny model that was taught to call the tool, and does so most of the time."""
    thinking = request.param == "qwen3_thinking"
    demos = demonstrations(thinking)
    texts = [m["content"] for d in demos for m in d]
    model, tokenizer = tiny.make(TinyConfig(hidden_size=48, vocab_size=400), texts, 0)
    if thinking:
        tokenizer.chat_template = QWEN3.read_text()
    policy = Policy(model, tokenizer)
    cfg = SFTConfig(epochs=20, batch_size=6, learning_rate=1e-2, optimizer="muon")
    budget = TokenBudget(4000, silent)
    losses = list(fine_tune(policy, renderer_of(policy), demos, cfg, 0, budget, 2000))
    assert losses[-1][2] < 0.4 * losses[0][2]
    return policy


def fresh(speaker: Policy, rank: int = 0) -> Setup:
    policy = Policy(copy.deepcopy(speaker.base), speaker.tokenizer)
    if rank:
        policy.add_adapter(AdapterConfig(rank=rank, alpha=2 * rank), 0)
    return Setup(policy, renderer_of(policy))


def gather(
    setup: Setup, temperature: float, version: int = 0, num: int = 3, **engine: Any
) -> list[TrajectoryGroup]:
    """Groups of 4 episodes of each scenario, all at once, by an engine of their own."""

    async def run() -> list[TrajectoryGroup]:
        served = TransformersEngine(
            setup.policy,
            EngineConfig(**engine),
            SamplingConfig(temperature=temperature, max_tokens=40),
            setup.renderer.stop_ids,
        )
        await served.sync(version)
        scenarios = [Scenario(id=f"train-{i}", split="train", seed=i) for i in range(num)]
        sessions = [served.open(100 * version + i) for i in range(4 * num)]
        room = EngineConfig(**engine).max_model_len

        async def one(i: int) -> Trajectory:
            agent = PolicyAgent(setup.renderer, lambda: sessions[i], room)
            return await rollout(Lookup, None, scenarios[i // 4], agent)

        played = await asyncio.gather(*(one(i) for i in range(4 * num)))
        groups = [TrajectoryGroup(played[4 * i : 4 * i + 4]) for i, s in enumerate(scenarios)]
        set_advantages(groups, "mean")
        return groups

    return asyncio.run(run())


def trainer_of(setup: Setup, temperature: float, **changes: Any) -> GRPOTrainer:
    cfg = TrainConfig(steps=10, learning_rate=2e-3, **changes)
    return GRPOTrainer(setup.policy, cfg, SamplingConfig(temperature=temperature, max_tokens=40))


@pytest.mark.parametrize(
    ("rank", "temperature"), slow_but([(8, 0.7)], [(0, 1.0), (0, 0.7), (8, 0.7)])
)
def test_the_ratio_is_one_on_policy_before_and_after_updates(
    speaker: Policy, rank: int, temperature: float
) -> None:
    setup = fresh(speaker, rank)
    trainer = trainer_of(setup, temperature)
    for step in range(3):
        groups = gather(setup, temperature, version=step)
        metrics = trainer.step(groups, step)
        trajectories = [t for g in groups for t in g.trajectories]
        assert all(t.error is None for t in trajectories)
        assert all(t.metrics["turns_seen"] == t.num_turns > 0 for t in trajectories)
        assert any(m["role"] == "tool" for t in trajectories for m in t.messages)
        assert max(t.num_turns for t in trajectories) >= 3
        assert {v for t in trajectories for v in t.policy_versions} == {step}
        assert metrics["loss/logprob_gap"] < 1e-5
        assert abs(metrics["loss/ratio_max"] - 1) < 1e-4
        assert abs(metrics["loss/ratio_mean"] - 1) < 1e-5


def test_thinking_forks_and_tool_results_do_not(
    speaker: Policy, request: pytest.FixtureRequest
) -> None:
    groups = gather(fresh(speaker), 1.0)
    trajectories = [t for g in groups for t in g.trajectories]
    thoughts = [sum("</think>" in m["content"] for m in t.messages) for t in trajectories]
    forks = [len(t.sequences) - 1 for t in trajectories]
    assert all(f <= n for f, n in zip(forks, thoughts, strict=True))
    assert any(forks) == ("qwen3" in request.node.name)


def test_every_turn_is_trained_exactly_once_with_what_the_engine_sampled(speaker: Policy) -> None:
    """Each run of sampled tokens is one turn; decoded, it is the message that the env saw."""
    setup = fresh(speaker)
    for t in (t for g in gather(setup, 1.0) for t in g.trajectories):
        turns: list[list[int]] = []
        for s in t.sequences:
            for i, m in enumerate(s.mask):
                if m and not s.mask[i - 1]:
                    turns.append([])
                if m:
                    turns[-1].append(s.ids[i])
        said = [m["content"] for m in t.messages if m["role"] == "assistant"]
        assert [setup.renderer.decode(ids) for ids in turns] == said
        assert len(turns) == t.num_turns


@pytest.mark.parametrize("wrong", ["temperature", "weights"])
def test_a_batch_of_another_distribution_is_refused(speaker: Policy, wrong: str) -> None:
    setup = fresh(speaker)
    groups = gather(setup, 0.7)
    if wrong == "weights":
        for p in setup.policy.trainable:
            p.data *= 1.1
    trainer = trainer_of(setup, 1.0 if wrong == "temperature" else 0.7)
    with pytest.raises(EngineError, match="not on-policy"):
        trainer.step(groups, 0)


def test_a_turn_cut_by_max_tokens_and_one_cut_by_the_context_count_as_truncated(
    speaker: Policy,
) -> None:
    setup = fresh(speaker)
    prompt = setup.renderer.text(
        [{"role": "system", "content": Lookup.system}, {"role": "user", "content": "look up a"}]
    )
    room = len(setup.renderer.encode(prompt)) + 12
    groups = gather(setup, 1.0, max_model_len=room)
    trajectories = [t for g in groups for t in g.trajectories]
    assert any(t.truncated for t in trajectories)
    for t in trajectories:
        assert t.stop_reason in ("env", "context") and t.reward is not None
        assert t.metrics["truncated_seen"] == t.truncated
        for s in t.sequences:  # nothing that there was no room to read
            assert s.mask[-1] == 1 and len(s.ids) <= room
    metrics = trainer_of(setup, 1.0).step(groups, 0)
    assert metrics["loss/logprob_gap"] < 1e-5


@pytest.mark.parametrize("deterministic", [True, False])
def test_two_gathers_are_the_same_to_the_bit(speaker: Policy, deterministic: bool) -> None:
    """Tools run in threads, in any order. Without `deterministic`, the tokens are the same here:
    batches of other sizes round almost alike in so small a model.
    """
    setup = fresh(speaker)
    first, second = (gather(setup, 1.0, deterministic=deterministic) for _ in range(2))
    ids = [[s.ids for t in g.trajectories for s in t.sequences] for g in first]
    assert ids == [[s.ids for t in g.trajectories for s in t.sequences] for g in second]
    if deterministic:
        for a, b in zip(first, second, strict=True):
            for x, y in zip(a.trajectories, b.trajectories, strict=True):
                assert x.sequences == y.sequences and x.messages == y.messages
                assert x.reward == y.reward
