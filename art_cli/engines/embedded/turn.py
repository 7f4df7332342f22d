"""A turn in progress: its tokens so far, and its end conditions."""

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
    """The tokens of a turn so far, and its sampling conditions."""

    room: int  # maximum number of tokens
    stops: StopTexts | None = None
    grammar: str | None = None
    matcher: LLMatcher | None = None  # state of the grammar after the sampled tokens
    num_top: int = 0  # number of likeliest tokens to report
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    forced: set[int] = field(default_factory=set)  # see `Completion`
    top: list[dict[int, float]] = field(default_factory=list)

    def take(self, token: int, logprob: float, is_end: bool) -> Reason | None:
        """Append a token. Return the reason if the turn is over, else None."""
        self.sampled.append(token)
        self.logprobs.append(logprob)
        if self.matcher and self.matcher.is_error():  # the grammar has become too complex
            return "length"
        if is_end or (self.stops and self.stops.end_with(self.sampled)):
            return "stop"
        if len(self.sampled) >= self.room:
            return "length"
        return "length" if self.matcher and not self.matcher.consume_token(token) else None

    def completion(self, reason: Reason, policy_version: int) -> Completion:
        """Return the turn as a `Completion`."""
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
    """Draw a token for each turn from its row of logits [R, V], within its grammar.

    Return the ids and their log-probabilities under the sampled distribution. With `raw_logprobs`
    they are before temperature, top_k and top_p, as a vLLM server reports them.
    """
    held = [(i, turn) for i, turn in enumerate(turns) if turn.matcher]
    if held:
        logits, which = logits[which], list(range(len(turns)))  # one row a turn: grammars differ
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
