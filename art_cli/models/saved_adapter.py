"""Load a saved adapter onto a model, through PEFT."""

from __future__ import annotations

from pathlib import Path

from peft import PeftModel
from transformers import PreTrainedModel


def with_saved_adapter(base: PreTrainedModel, folder: Path) -> PeftModel:
    """Load the adapter in a folder onto a model. Raises OSError, ValueError."""
    return PeftModel.from_pretrained(base, str(folder)).eval()
