"""An optimizer step that is shortened to bound the change of the policy."""

from __future__ import annotations

from collections.abc import Callable

import torch

MAX_HALVINGS = 6


@torch.no_grad()
def bounded_step(
    optimizer: torch.optim.Optimizer, distance: Callable[[], float], most: float
) -> tuple[float, bool]:
    """Take a step, and halve it while `distance` exceeds `most`.

    This is the bound and the backtracking of TRPO (1502.05477, appendix C) around any optimizer.
    The optimizer's state stays that of the full step. After MAX_HALVINGS the step is undone.
    `distance` returns the distance between the present weights and those before the step.

    Return the distance of the full step, and whether it was shortened. If `distance` raises, the
    weights are restored and the exception propagates.
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
    if not now <= most:  # also true if `now` is NaN
        _put_back(params, before)
    return whole, not whole <= most


def _put_back(params: list[torch.nn.Parameter], before: list[torch.Tensor]) -> None:
    for p, old in zip(params, before, strict=True):
        p.copy_(old)
