"""Choice for `engine.sync: auto`: serve the adapter beside the base, or merge it.

An adapter arrives in milliseconds, but slows every token on a GPU by a third
(huggingface/trl#7017). Merged weights are as large as the model. Each way is tried for one version,
and the one with less total time is used from then on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from art_cli.models.experts import adapts_experts
from art_cli.models.policy import Policy

Way = Literal["adapter", "merged"]
Sync = Literal["auto", "adapter", "merged"]


def sync_of(policy: Policy, sync: Sync) -> Sync:
    """Return the way to send a policy's weights for the config's `sync`.

    Some machines lack vLLM's kernels for adapters on experts; merged weights always work.
    """
    if not policy.has_adapter or (sync == "auto" and adapts_experts(policy.model)):
        return "merged"
    return sync


@dataclass(slots=True)
class _Trial:
    """One version of the weights: the time of its sync, and of sampling from it."""

    sync_s: float
    tokens: int = 0
    began: float = 0.0
    ended: float = 0.0

    def seconds(self, tokens: int) -> float:
        """Return the seconds that sync and sampling of `tokens` tokens take in total."""
        return self.sync_s + tokens * (self.ended - self.began) / self.tokens


class SyncChoice:
    """Decides how the next weights are sent, from measurements of the previous ones."""

    def __init__(self, sync: Sync) -> None:
        self.way: Way = "adapter" if sync == "auto" else sync
        self._open = sync == "auto"
        self._trials: dict[Way, _Trial] = {}

    def synced(self, seconds: float) -> None:
        """Record the seconds that the last sync took."""
        if self._open:
            self._trials[self.way] = _Trial(seconds)

    def sampled(self, tokens: int, began: float) -> None:
        """Record a turn that has just ended. `began` is a monotonic time in seconds."""
        if self._open and (trial := self._trials.get(self.way)):
            trial.began = min(trial.began or began, began)
            trial.ended, trial.tokens = time.monotonic(), trial.tokens + tokens

    def next(self, least: int) -> str | None:
        """Decide how the next weights are sent, once `least` tokens were sampled.

        Return a message for the user when the decision is made, else None.
        """
        trial = self._trials.get(self.way)
        if not self._open or trial is None or trial.tokens < least:
            return None
        if self.way == "adapter":
            self.way = "merged"
            return None
        self._open = False
        tokens = self._trials["adapter"].tokens
        costs = {way: t.seconds(tokens) for way, t in self._trials.items()}
        self.way = "adapter" if costs["adapter"] <= costs["merged"] else "merged"
        told = ", ".join(f"{way} {seconds:.1f} s" for way, seconds in costs.items())
        return f"engine.sync: {self.way} from now on (a step's weights and sampling: {told})"
