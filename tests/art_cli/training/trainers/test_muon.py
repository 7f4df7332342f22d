from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from art_cli.training.trainers import muon

SHAPES = [(8, 8), (4, 8), (24, 8), (8, 8), (8, 24), (1, 8), (24, 8)]


@pytest.mark.parametrize("at_once", [1, 2**24])
def test_it_is_torchs_muon(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(muon, "AT_ONCE", at_once)
    torch.manual_seed(0)
    mine = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    theirs = copy.deepcopy(mine)
    ours = muon.Muon(mine, lr=0.02, weight_decay=0.1)
    torchs = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, momentum=muon.MOMENTUM)
    for step in range(4):
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            a.grad = None if i == 3 and step == 1 else torch.randn_like(a) * 10.0 ** (i - 3)
            b.grad = None if a.grad is None else a.grad.clone()
        ours.step()
        torchs.step()
    for a, b in zip(mine, theirs, strict=True):  # bf16: kernels may add up in another order
        torch.testing.assert_close(a, b, rtol=0, atol=2e-3)


def test_an_update_is_nearly_orthogonal() -> None:
    torch.manual_seed(0)
    for m in muon.orthogonal([torch.randn(6, 12), torch.randn(12, 6)]):
        assert 0.4 < torch.linalg.svdvals(m.float()).min() <= torch.linalg.svdvals(m.float()).max()
        assert torch.linalg.svdvals(m.float()).max() < 1.6
