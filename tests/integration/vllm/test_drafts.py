"""Why drafts are refused on a CPU. They are a matter of `engine.extra`, on a GPU."""

from __future__ import annotations

import torch
from vllm.platforms import current_platform
from vllm.utils.cpu_triton_utils import _expand_kernel_impl


def test_vllm_does_not_tell_the_tokens_of_a_draft_their_temperature() -> None:
    """Once this fails, `_check_drafts` in art_cli/engines/vllm/server.py may go."""
    current_platform.import_kernels()
    untold = torch.full((3,), torch.nan)
    drafted = torch.tensor([1, 3], dtype=torch.int32)  # one by the first row, two by the second
    _expand_kernel_impl(untold, torch.tensor([0.7, 0.6]), drafted, 0, 1)
    assert untold.isnan().all()
