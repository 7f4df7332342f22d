"""An adapter from its files, as PEFT itself puts it on a model."""

from __future__ import annotations

from pathlib import Path

from peft import PeftModel
from transformers import PreTrainedModel


def with_saved_adapter(base: PreTrainedModel, folder: Path) -> PeftModel:
    """Put the adapter that was saved into a folder on a model. Raises OSError, ValueError."""
    return PeftModel.from_pretrained(base, str(folder)).eval()
