"""Turns that are held to a schema, and what a plain reference says of them."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from batches import SAMPLING
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from art_cli.chat.grammar.schema import checked_schema
from art_cli.chat.grammar.write import HEAD
from art_cli.config.sections.engine import EngineConfig
from art_cli.engines.base import Engine, Session
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.types import Completion, Scenario, Sequence, Trajectory, TrajectoryGroup

END = 2  # <|im_end|> of the tiny tokenizer
ORDER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "gift": {"type": "boolean"},
    },
    "required": ["name", "count"],
    "additionalProperties": False,
}
SCENARIO = Scenario(id="s", split="train", seed=0)
COLOUR = {"enum": ["red", "blue", "reddish"]}


def grammar(schema: Any) -> str:
    """An answer to a schema, and the end of the turn."""
    return f"{HEAD}start: answer <[{END}]>\nanswer: %json {checked_schema(schema)}\n"


def masks(policy: Policy, text: str, ids: list[int]) -> Tensor:
    """Which tokens a grammar allows at each of these [T, V]: one at a time, a byte a token."""
    vocabulary = policy.grammars.vocabulary
    tokens = LLTokenizer(vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=vocabulary.eos)
    matcher = LLMatcher(tokens, text)
    rows = []
    for i in ids:
        bias = torch.frombuffer(bytearray(matcher.compute_logit_bias()), dtype=torch.uint8)
        rows.append(bias[: vocabulary.size] > 0)
        assert matcher.consume_token(i), matcher.get_error()
    return torch.stack(rows)


def masked_logprobs(model: Any, policy: Policy, s: Sequence, temperature: float) -> Tensor:
    """[T - 1] of a whole sequence, by transformers' own forward and a full softmax."""
    logits = model(input_ids=torch.tensor([s.ids]), use_cache=False).logits[0, :-1] / temperature
    for part in s.constrained:
        allowed = masks(policy, part.grammar, s.ids[part.begin : part.end])
        here = slice(part.begin - 1, part.end - 1)
        logits[here] = logits[here].masked_fill(~allowed, -torch.inf)
    return logits.log_softmax(-1).gather(1, torch.tensor(s.ids[1:])[:, None])[:, 0]


def answers(
    engine: Engine,
    prompts: list[list[int]],
    grammars: list[str | None],
    seed: int = 0,
    **asked: Any,
) -> list[Completion]:
    """One turn each, all at once."""

    async def one(session: Session, prompt: list[int], text: str | None) -> Completion:
        try:
            return await session.generate(list(prompt), grammar=text, **asked)
        finally:
            session.close()

    async def everyone() -> list[Completion]:
        sessions = [engine.open(seed + i) for i in range(len(prompts))]
        jobs = map(one, sessions, prompts, grammars)
        return list(await asyncio.wait_for(asyncio.gather(*jobs), 300))

    return asyncio.run(everyone())


def sequence_of(prompt: list[int], completion: Completion) -> Sequence:
    s = Sequence()
    s.extend_prompt(prompt)
    s.extend_sampled(completion)
    return s


def held_groups(policy: Policy) -> list[TrajectoryGroup]:
    """Siblings that the embedded engine played: free turns, and turns held to two schemas."""
    engine = TransformersEngine(policy, EngineConfig(), SAMPLING, frozenset({END}))
    kinds = [grammar(ORDER), None, grammar(COLOUR), grammar({"enum": ["red"]})]
    grammars = [kinds[i % 4] for i in range(8)]
    trajectories = []
    firsts = answers(engine, [[7, 8, 9]] * 8, grammars)
    sequences = [sequence_of([7, 8, 9], first) for first in firsts]
    for s in sequences:
        s.extend_prompt([11, 12])
    seconds = answers(engine, [s.ids for s in sequences], grammars[::-1])
    for i, (s, second) in enumerate(zip(sequences, seconds, strict=True)):
        s.extend_sampled(second)
        trajectories.append(Trajectory(scenario=SCENARIO, sequences=[s], reward=float(i % 3)))
    groups = [TrajectoryGroup(trajectories)]
    set_advantages(groups, "mean")
    return groups
