"""An optimizer step that moves the policy no further than it may."""

from __future__ import annotations

from collections.abc import Callable

import torch

MAX_HALVINGS = 6


@torch.no_grad()
def bounded_step(
    optimizer: torch.optim.Optimizer, distance: Callable[[], float], most: float
) -> tuple[float, bool]:
    """Take a step, and go back half of the way while the policy is further than `most` from before.

    This is the bound and the backtracking of TRPO (1502.05477, appendix C) around any optimizer,
    whose state stays that of the whole step. After MAX_HALVINGS the step is taken back. `distance`
    returns how far the present weights are from those before.

    Return the distance of the whole step, and whether it was shortened. What `distance` raises goes
    on, with the weights as before.
    """
    params = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in params]
    try:
        optimizer.step()
        whole = now = distance()
        for _ in range(MAX_HALVINGS):
            if now <= most:
                break
            for p, old in zip(params, before, strict=True):
                p.lerp_(old, 0.5)
            now = distance()
    except BaseException:
        _put_back(params, before)
        raise
    if not now <= most:  # so it is where `now` is no number, too
        _put_back(params, before)
    return whole, not whole <= most


def _put_back(params: list[torch.nn.Parameter], before: list[torch.Tensor]) -> None:
    for p, old in zip(params, before, strict=True):
        p.copy_(old)
