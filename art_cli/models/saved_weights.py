"""Reading weights and optimizer states: what is in the file may be anything."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from art_cli.errors import CheckpointError

ERRORS = (
    *(OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, EOFError),
    *(UnpicklingError, SafetensorError, StrictDataclassError),
)
SHOWN = 200  # characters of what torch says


@contextmanager
def damage_told(place: Path) -> Iterator[None]:
    """Turn what reading a file, or the files of a folder, raises into a CheckpointError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except ERRORS as e:
        line = " ".join(str(e).split())
        raise CheckpointError(
            f"{place} is not what a run writes: {type(e).__name__}: {line[:SHOWN]}. Its checksums "
            "may be right: whoever made the file made them, too. Take another checkpoint"
        ) from None


def load_tokenizer(folder: Path, place: Path) -> Any:
    """Return the tokenizer in a folder, a copy of the checkpoint `place`. Raise CheckpointError."""
    from transformers import AutoTokenizer

    with damage_told(place):
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        if tokenizer.eos_token_id is None:
            raise ValueError("its tokenizer has no token that ends a turn")
    tokenizer.name_or_path = str(place)  # messages name it; a copy is gone by then
    return tokenizer


def load_state(file: Path) -> dict[str, Any]:
    """Return the state of an optimizer that torch saved, which runs no code. Raise CheckpointError.

    Python's objects in it are refused.
    """
    with damage_told(file), warnings.catch_warnings(action="ignore"):
        return torch.load(file, weights_only=True, map_location="cpu")
