"""Check after each sync that the engine samples with the trainer's weights.

Stale weights raise no error: rewards keep coming, and nothing is learned. The engine therefore
answers a fixed prompt, by the same path as any turn (prefix cache included). The trainer computes
the log-probabilities of that answer for comparison.
"""

from __future__ import annotations

import torch
from torch import Tensor

from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Engine
from art_cli.errors import EngineError
from art_cli.models.policy import Policy
from art_cli.training.algorithm.packing import TrainSequence
from art_cli.training.trainers.base import Trainer
from art_cli.types import Completion

MORE_TOKENS = 16  # of the prompt beyond one block of the engine's prefix cache
ANSWER_TOKENS = 4
# Largest difference of a token's log-probability between engine and trainer, by dtype.
MAX_GAP = {torch.float32: 1e-2, torch.bfloat16: 0.5}
# If the trainer's log-probability moved by this much, the engine's must have moved too.
MOVED = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


class Canary:
    """Compares the engine's answer with the trainer, and with the answer before the sync."""

    def __init__(
        self, policy: Policy, trainer: Trainer, sampling: SamplingConfig, max_model_len: int
    ) -> None:
        self._trainer = trainer
        self._is_cut = sampling.top_p < 1 or sampling.top_k > 0
        self._dtype, vocab = policy.dtype, policy.head.weight.shape[0]
        self._room = max(1, max_model_len - ANSWER_TOKENS)
        self._vocab = vocab
        self._last: tuple[Completion, Tensor] | None = None

    async def check(self, engine: Engine, version: int) -> None:
        """Raise EngineError if the engine holds other weights than the trainer.

        The prompt is long enough to hit a prefix cache that the sync failed to clear.
        """
        num = min(engine.cached_tokens + MORE_TOKENS, self._room)
        prompt = [(7 * i + 3) % self._vocab for i in range(num)]
        session = engine.open(0)
        try:
            answer = await session.generate(prompt, max_tokens=ANSWER_TOKENS)
        finally:
            session.close()
        mine = self._logprobs(prompt, answer.token_ids)
        # The engine's log-probabilities are after top_p and top_k, the trainer's over all tokens.
        gap = 0.0 if self._is_cut else float((mine - torch.tensor(answer.logprobs)).abs().max())
        if answer.policy_version != version:
            problem = f"it answers with version {answer.policy_version}"
        elif not gap <= MAX_GAP[self._dtype]:
            problem = (
                f"log-probabilities of a fixed prompt's answer differ by {gap:.2g} (at most "
                f"{MAX_GAP[self._dtype]:g} is rounding)"
            )
        elif self._stands_still(answer, mine, MOVED[self._dtype]):
            problem = "its answer to a fixed prompt is the last version's to the bit"
        else:
            self._last = answer, mine
            return
        raise EngineError(
            f"after the sync to version {version} the engine does not hold the trainer's weights: "
            f"{problem}"
        )

    def _stands_still(self, answer: Completion, mine: Tensor, moved: float) -> bool:
        if self._last is None:
            return False
        last, then = self._last
        same = (last.token_ids, last.logprobs) == (answer.token_ids, answer.logprobs)
        same = same and any(answer.logprobs)  # with top_k=1 all are 0 and prove nothing
        return same and float((mine - then).abs().max()) > moved

    def _logprobs(self, prompt: list[int], answer: list[int]) -> Tensor:
        """Return the trainer's log-probabilities of the answer's tokens."""
        ids, num = [*prompt, *answer], len(prompt)
        return self._trainer.logprobs(
            TrainSequence(
                ids=ids,
                mask=[0] * num + [1] * len(answer),
                engine_logprobs=[0.0] * len(ids),
            )
        )
