"""One turn at vLLM: its request, and parsing of the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from art_cli.chat.grammar.allowed import has, is_forced
from art_cli.chat.grammar.grammars import Grammars
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.errors import EngineError
from art_cli.types import Completion

LEAST_LOGPROB = -9999.0  # vLLM's value for -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """The request of a session for one turn."""

    ids: list[int]
    seed: int
    max_tokens: int
    stop: tuple[str, ...]
    grammar: str | None
    top_logprobs: int

    def params(self, sampling: SamplingConfig, stop_ids: list[int]) -> dict[str, Any]:
        """Return vLLM's sampling parameters."""
        params: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,  # 0: off
            "seed": self.seed,
            # One more, because the sampled token may be among them.
            "logprobs": self.top_logprobs and self.top_logprobs + 1,
            "stop_token_ids": stop_ids,
            "ignore_eos": True,  # the stop tokens end a turn
            "stop": list(self.stop),
            "detokenize": bool(self.stop),
        }
        if self.grammar is not None:
            # Passed as a grammar even for a schema: the update computes its masks from the same
            # text.
            params["structured_outputs"] = {"grammar": self.grammar}
        return params

    def completion(self, choice: dict[str, Any], version: int, grammars: Grammars) -> Completion:
        """Parse a response. Raises EngineError if vLLM violated the grammar."""
        if choice["finish_reason"] not in ("stop", "length"):
            raise EngineError(f"vLLM aborted a turn: {choice['finish_reason']}")
        ids, content = choice["token_ids"], choice["logprobs"]["content"]
        return Completion(
            token_ids=ids,
            logprobs=[t["logprob"] for t in content],
            finish_reason="length" if choice["finish_reason"] == "length" else "stop",
            policy_version=version,
            grammar=self.grammar,
            forced=self._forced(ids, grammars),
            top_logprobs=[self._likeliest(t) for t in content] if self.top_logprobs else [],
        )

    def _likeliest(self, token: dict[str, Any]) -> dict[int, float]:
        """Return the likeliest tokens. vLLM always adds the sampled one."""
        all_of_them = {t["token_id"]: t["logprob"] for t in token["top_logprobs"]}
        pairs = sorted(all_of_them.items(), key=lambda pair: -pair[1])
        return {i: p for i, p in pairs[: self.top_logprobs] if p > LEAST_LOGPROB}

    def _forced(self, ids: list[int], grammars: Grammars) -> frozenset[int]:
        """Return the positions where the grammar allowed a single token."""
        if self.grammar is None or not ids:
            return frozenset()
        [bits] = grammars.replay([(self.grammar, ids)])
        if not bool(has(bits, torch.tensor(ids)).all()):
            raise EngineError(
                "vLLM sampled a token that the answer's grammar does not allow; start the server "
                "with --structured-outputs-config.backend guidance and the llguidance of this "
                "machine"
            )
        return frozenset(is_forced(bits).nonzero()[:, 0].tolist())
