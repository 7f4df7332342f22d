"""Attention over a tree on a CPU against plain attention of each sequence, and its gradients."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from cases import slow_but
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from art_cli.models.forward.attention import Look
from art_cli.models.forward.cascade import APART
from art_cli.models.forward.token_tree import TokenNode, TreeLayout, grow_tree, lay_out

LOOK = Look(scale=0.25)


def tree(seed: int, share: bool = True) -> tuple[list[TokenNode], list[TokenNode], TreeLayout]:
    """Return nodes, leaves and layout; a large root, small and large nodes below it, and leaves."""
    rng = random.Random(seed)

    def ids(least: int, most: int) -> list[int]:
        return [rng.randrange(50) for _ in range(rng.randint(least, most))]

    rows = [ids(1, 2 * APART)]  # shares nothing
    for system in (ids(APART, 2 * APART), ids(33, APART - 1)):
        for _ in range(2):
            user = system + ids(20, 2 * APART)
            for _ in range(2):
                turn = user + ids(1, 2 * APART)
                rows += [turn + ids(1, 40) for _ in range(3)] + [turn]
    nodes, leaves = grow_tree(rows, share)
    return nodes, leaves, lay_out(nodes)


def inputs(num: int, asked: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return q, k, v as a model's projections lay them out, and a gradient of the result."""
    torch.manual_seed(0)
    shapes = ((asked, 4), (num, 2), (num, 2), (asked, 4))
    q, k, v, grad = (2 * torch.randn(1, n, h, 16, dtype=dtype) for n, h in shapes)
    return [*(x.transpose(1, 2).requires_grad_() for x in (q, k, v)), grad]


def plain(leaves: list[TokenNode], at: list[int], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return [1, S, H, D], each query from one sequence that it is in. `at`: its packed token."""
    row_of = {token: row for row, token in enumerate(at)}
    found: dict[int, Tensor] = {}
    for leaf in leaves:
        path = leaf.path()
        asked = [i for i, token in enumerate(path) if token in row_of and token not in found]
        mask = torch.arange(len(path)) <= torch.tensor(asked)[:, None]
        rows = q[:, :, [row_of[path[i]] for i in asked]]
        o = F.scaled_dot_product_attention(
            rows, k[:, :, path], v[:, :, path], attn_mask=mask, scale=LOOK.scale, enable_gqa=True
        )
        found |= {path[i]: o[0, :, j] for j, i in enumerate(asked)}
    return torch.stack([found[token] for token in at])[None]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("seed", slow_but((1,), range(3)))
def test_result_and_gradients_are_those_of_plain_attention(
    seed: int, narrow: bool, share: bool
) -> None:
    nodes, leaves, layout = tree(seed, share)
    num = sum(len(n.ids) for n in nodes)
    at = list(range(num))
    if narrow:
        at = sorted(random.Random(seed).sample(at, num // 3))
        layout = layout.of(torch.tensor(at))
    q, k, v, grad = inputs(num, len(at))
    mine = layout.attend(0, q, k, v, LOOK)
    theirs = plain(leaves, at, q, k, v)
    assert torch.allclose(mine, theirs, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(mine, (q, k, v), grad),
        torch.autograd.grad(theirs, (q, k, v), grad),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-11)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 3e-5), (torch.bfloat16, 0.2)])
def test_smaller_types_differ_by_their_rounding(dtype: torch.dtype, atol: float) -> None:
    nodes, _, layout = tree(0)
    num = sum(len(n.ids) for n in nodes)
    q, k, v, grad = inputs(num, num)
    expected = layout.attend(0, q, k, v, LOOK)
    exact, rounded = (q, k, v), [x.to(dtype).detach().requires_grad_() for x in (q, k, v)]
    mine = lay_out(nodes).attend(0, rounded[0], rounded[1], rounded[2], LOOK)
    assert mine.dtype == dtype
    assert torch.allclose(mine.double(), expected, atol=atol)
    for a, b in zip(
        torch.autograd.grad(mine, rounded, grad.to(dtype)),
        torch.autograd.grad(expected, exact, grad),
        strict=True,
    ):
        assert a.dtype == dtype
        assert float((a.double() - b).norm() / b.norm()) < atol / 10


def test_it_is_the_same_without_a_gradient_and_when_run_again_for_one() -> None:
    nodes, _, layout = tree(1)
    num = sum(len(n.ids) for n in nodes)
    q, k, v, grad = inputs(num, num)
    expected = layout.attend(0, q, k, v, LOOK)
    with torch.inference_mode():
        assert torch.equal(layout.attend(0, q, k, v, LOOK), expected)
    again = checkpoint(layout.attend, 0, q, k, v, LOOK, use_reentrant=False)
    assert isinstance(again, Tensor)
    assert torch.equal(again, expected)
    for a, b in zip(
        torch.autograd.grad(again, (q, k, v), grad),
        torch.autograd.grad(expected, (q, k, v), grad),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_queries_that_weigh_one_key_alone_do_not_spoil_the_gradients_of_padding() -> None:
    """Scores of thousands: a weight that is taken relative to another query's sum is infinite."""
    nodes, leaves, layout = tree(2)
    num = sum(len(n.ids) for n in nodes)
    q, k, v, grad = inputs(num, num)
    q = (1000 * q).detach().requires_grad_()
    mine, theirs = layout.attend(0, q, k, v, LOOK), plain(leaves, list(range(num)), q, k, v)
    for a, b in zip(
        torch.autograd.grad(mine, (q, k, v), grad),
        torch.autograd.grad(theirs, (q, k, v), grad),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-6)


def test_what_is_kept_for_the_backward_grows_with_the_tokens_alone() -> None:
    """A hundred siblings of one token each: their prefix is kept once."""
    prompt = [0] * 500
    nodes, _ = grow_tree([[*prompt, 1 + i] for i in range(100)])
    q, k, v, _ = inputs(600, 600)
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = lay_out(nodes).attend(0, q, k, v, LOOK)
    sums = 600 * 4 * 8
    assert sum(kept.values()) <= sum(x.nbytes for x in (q, k, v, out)) + sums
