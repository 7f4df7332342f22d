"""What a model's folder says of generation (generation_config.json), kept as it was read."""

from __future__ import annotations

from typing import Any

from transformers import GenerationConfig, PreTrainedModel


class KeptGenerationConfig(GenerationConfig):
    """Settings that are written again as they were read.

    transformers reads a temperature without `do_sample`, but refuses to write it (its issue 29988).
    Nothing here samples by these settings; only the ids that end a turn are used.
    """

    def validate(self, *_: Any, **__: Any) -> None:
        """Let anything pass."""


def keep_generation_config(model: PreTrainedModel) -> None:
    """Let the model write its generation settings as they were read."""
    if model.generation_config is not None:
        model.generation_config.__class__ = KeptGenerationConfig
