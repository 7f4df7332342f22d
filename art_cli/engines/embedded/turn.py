"""A turn that is being sampled: what of it is there, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from art_cli.chat.grammar.allowed import is_forced, unpacked
from art_cli.chat.grammar.grammars import Grammars
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.sampler import draw, likeliest, log_distribution
from art_cli.engines.embedded.stops import StopTexts
from art_cli.types import Completion

if TYPE_CHECKING:
    from llguidance import LLMatcher

Reason = Literal["stop", "length"]  # why a turn ended


@dataclass(slots=True, kw_only=True)
class TurnSoFar:
    """Its tokens, and the conditions under which they are sampled."""

    room: int  # tokens that it may have
    stops: StopTexts | None = None
    grammar: str | None = None
    matcher: LLMatcher | None = None  # of the grammar, behind what was sampled
    num_top: int = 0  # of the likeliest tokens, to be told
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    forced: set[int] = field(default_factory=set)  # see Completion
    top: list[dict[int, float]] = field(default_factory=list)

    def take(self, token: int, logprob: float, is_end: bool) -> Reason | None:
        """Go on with a token. Return why the turn is over, if it is."""
        self.sampled.append(token)
        self.logprobs.append(logprob)
        if self.matcher and self.matcher.is_error():  # it has become too complex, and says nothing
            return "length"
        if is_end or (self.stops and self.stops.end_with(self.sampled)):
            return "stop"
        if len(self.sampled) >= self.room:
            return "length"
        return "length" if self.matcher and not self.matcher.consume_token(token) else None

    def completion(self, reason: Reason, policy_version: int) -> Completion:
        """Return what was sampled."""
        return Completion(
            token_ids=self.sampled,
            logprobs=self.logprobs,
            finish_reason=reason,
            policy_version=policy_version,
            grammar=self.grammar,
            forced=frozenset(self.forced),
            top_logprobs=self.top,
        )


def sample(
    turns: list[TurnSoFar],
    logits: Tensor,
    which: list[int],
    sampling: SamplingConfig,
    uniforms: list[float],
    grammars: Grammars,
    raw_logprobs: bool = False,
) -> tuple[list[int], list[float]]:
    """Draw a token for each turn from its row of logits [R, V], as far as its grammar allows.

    Return the ids and their log-probabilities: of what they are drawn from, or with `raw_logprobs`
    before temperature, top_k and top_p, as a vLLM that serves has them.
    """
    held = [(i, turn) for i, turn in enumerate(turns) if turn.matcher]
    if held:
        logits, which = logits[which], list(range(len(turns)))  # each has its own grammar
        bits = grammars.masks([turn.matcher for _, turn in held if turn.matcher])
        for (_, turn), forced in zip(held, is_forced(bits).tolist(), strict=True):
            turn.forced |= {len(turn.sampled)} if forced else set()
        rows = torch.tensor([i for i, _ in held], device=logits.device)
        allowed = unpacked(bits.to(logits.device), logits.shape[1])
        logits[rows] = logits[rows].masked_fill_(~allowed, -torch.inf)
    ids, logprobs = draw(logits, which, sampling, uniforms)
    if raw_logprobs:
        sampling = SamplingConfig()
        logprobs = log_distribution(logits, sampling)[which, ids].tolist()
    for row, turn in zip(which, turns, strict=True):
        if turn.num_top:
            turn.top.append(likeliest(logits[row : row + 1], sampling, turn.num_top))
    return ids, logprobs
