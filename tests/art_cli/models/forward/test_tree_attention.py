"""The tree as a GPU's kernel is told of it; test_gpu.py checks what that computes."""

from __future__ import annotations

import random
import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from art_cli.models.forward.attention import Look
from art_cli.models.forward.token_tree import grow_tree, lay_out
from art_cli.models.forward.tree_attention import BLOCK, TreeMask

WINDOWS = [None, 1, 20, 200]


def random_tree(seed: int, window: int | None) -> tuple[TreeMask, list[list[int]], torch.Tensor]:
    """Return the mask, the packed indices of each sequence, and who sees whom [N, N]."""
    rng = random.Random(seed)
    rows: list[list[int]] = []
    for _ in range(3):
        prompt = [rng.randrange(50) for _ in range(rng.randrange(40, 300))]
        for _ in range(rng.randrange(1, 5)):
            turn = [rng.randrange(50) for _ in range(rng.randrange(1, 200))]
            rows += [prompt + turn + [rng.randrange(50)] * rng.randrange(1, 90) for _ in range(2)]
    nodes, leaves = grow_tree(rows)
    layout = lay_out(nodes)
    paths = [leaf.path() for leaf in leaves]
    mask = TreeMask(layout.spans, window)
    index = torch.arange(mask.num_tokens)
    zero = torch.zeros((), dtype=torch.int32)
    sees = mask.sees(torch.device("cpu"))(zero, zero, index[:, None], index[None])
    return mask, paths, sees


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(5))
def test_a_token_sees_its_path_up_to_itself_and_nothing_else(seed: int, window: int | None) -> None:
    _, paths, sees = random_tree(seed, window)
    expected = torch.zeros_like(sees)
    for path in paths:
        for i, token in enumerate(path):
            expected[token, path[max(0, i + 1 - (window or i + 1)) : i + 1]] = True
    assert torch.equal(sees, expected)


@pytest.mark.parametrize("seed", range(5))
def test_no_block_is_skipped_or_taken_whole_that_is_not(seed: int) -> None:
    mask, _, sees = random_tree(seed, None)
    seen = mask.seen_in_blocks()
    size = seen.shape[0] * BLOCK
    whole = torch.zeros(size, size, dtype=torch.bool)
    whole[: len(sees), : len(sees)] = sees
    true = whole.view(-1, BLOCK, seen.shape[0], BLOCK).sum((1, 3))
    assert torch.equal(seen == 0, true == 0)
    assert torch.equal(seen == BLOCK * BLOCK, true == BLOCK * BLOCK)


@pytest.mark.parametrize("window", WINDOWS)
def test_attention_with_the_mask_is_the_layouts(window: int | None) -> None:
    """FlexAttention without its compiler, which knows the CPU."""
    rng = random.Random(1)
    prompt = [rng.randrange(50) for _ in range(200)]
    nodes, _ = grow_tree([prompt + [rng.randrange(50) for _ in range(n)] for n in (30, 150, 70)])
    layout = lay_out(nodes)
    mask = TreeMask(layout.spans, window)
    q, k, v = (torch.randn(1, h, mask.num_tokens, 16) for h in (4, 2, 2))
    plain = layout.attend(0, q, k, v, Look(scale=0.25, window=window))
    blocks = mask.block_mask(torch.device("cpu"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*without torch.compile")  # said once
        flex = flex_attention(q, k, v, block_mask=blocks, scale=0.25, enable_gqa=True)
    assert isinstance(flex, torch.Tensor)
    assert torch.allclose(flex.transpose(1, 2), plain, atol=1e-5)
