"""The tree as a GPU's kernel is told of it; test_gpu.py checks what that computes."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from art_cli.models.reading.tree_attention import BLOCK, TreeMask
from art_cli.training.algorithm import packing as pack
from art_cli.training.algorithm.packing import TrainSequence


def random_tree(seed: int) -> tuple[TreeMask, list[list[int]], torch.Tensor]:
    """-> (the mask, the packed indices of each sequence, who sees whom [N, N])"""
    rng = random.Random(seed)
    rows: list[list[int]] = []
    for _ in range(3):
        prompt = [rng.randrange(50) for _ in range(rng.randrange(40, 300))]
        for _ in range(rng.randrange(1, 5)):
            turn = [rng.randrange(50) for _ in range(rng.randrange(1, 200))]
            rows += [prompt + turn + [rng.randrange(50)] * rng.randrange(1, 90) for _ in range(2)]
    nodes, leaves = pack._tree(rows)
    pack._place(nodes)
    paths = [leaf.path() for leaf in leaves]
    mask = TreeMask(pack._spans(nodes))
    index = torch.arange(mask.num_tokens)
    zero = torch.zeros((), dtype=torch.int32)
    sees = mask.sees(torch.device("cpu"))(zero, zero, index[:, None], index[None])
    return mask, paths, sees


@pytest.mark.parametrize("seed", range(5))
def test_a_token_sees_its_path_up_to_itself_and_nothing_else(seed: int) -> None:
    _, paths, sees = random_tree(seed)
    expected = torch.zeros_like(sees)
    for path in paths:
        for i, token in enumerate(path):
            expected[token, path[: i + 1]] = True
    assert torch.equal(sees, expected)


@pytest.mark.parametrize("seed", range(5))
def test_no_block_is_skipped_or_taken_whole_that_is_not(seed: int) -> None:
    mask, _, sees = random_tree(seed)
    seen = mask.seen_in_blocks()
    size = seen.shape[0] * BLOCK
    whole = torch.zeros(size, size, dtype=torch.bool)
    whole[: len(sees), : len(sees)] = sees
    true = whole.view(-1, BLOCK, seen.shape[0], BLOCK).sum((1, 3))
    assert torch.equal(seen == 0, true == 0)
    assert torch.equal(seen == BLOCK * BLOCK, true == BLOCK * BLOCK)


def test_attention_with_the_mask_is_the_layouts() -> None:
    """FlexAttention without its compiler, which knows the CPU."""
    rng = random.Random(1)
    prompt = [rng.randrange(50) for _ in range(200)]
    rows = [prompt + [rng.randrange(50) for _ in range(n)] for n in (30, 150, 70)]
    batch = pack.pack(
        [TrainSequence(ids=r, mask=[0] * len(r), engine_logprobs=[0.0] * len(r)) for r in rows]
    )
    num = batch.ids.shape[1]
    q, k, v = (torch.randn(1, h, num, 16) for h in (4, 2, 2))
    plain = batch.layout.attend(0, q, k, v, 0.25)
    blocks = batch.layout._tree.block_mask(torch.device("cpu"))
    with pytest.warns(UserWarning, match="without torch.compile"):
        flex = flex_attention(q, k, v, block_mask=blocks, scale=0.25, enable_gqa=True)
    assert isinstance(flex, torch.Tensor)
    assert torch.allclose(flex.transpose(1, 2), plain, atol=1e-5)
