"""Load weights and optimizer states from files whose content is not trusted."""

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
SHOWN = 200  # characters of torch's message


@contextmanager
def damage_told(place: Path) -> Iterator[None]:
    """Convert errors of reading a file, or the files of a folder, into CheckpointError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except ERRORS as e:
        line = " ".join(str(e).split())
        raise CheckpointError(
            f"{place} is not a valid file: {type(e).__name__}: {line[:SHOWN]}. Its checksums "
            "may match, since they come with the file. Take another checkpoint"
        ) from None


def load_tokenizer(folder: Path, place: Path) -> Any:
    """Return the tokenizer in `folder`, a copy of checkpoint `place`. Raises CheckpointError."""
    from transformers import AutoTokenizer

    with damage_told(place):
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        if tokenizer.eos_token_id is None:
            raise ValueError("its tokenizer has no token that ends a turn")
    tokenizer.name_or_path = str(place)  # for messages; the copy is deleted
    return tokenizer


def load_state(file: Path) -> dict[str, Any]:
    """Load an optimizer state that torch saved, without running code. Raises CheckpointError.

    Pickled Python objects in the file are refused.
    """
    with damage_told(file), warnings.catch_warnings(action="ignore"):
        return torch.load(file, weights_only=True, map_location="cpu")
