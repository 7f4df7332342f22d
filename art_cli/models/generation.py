"""Generation settings of a model (generation_config.json), saved exactly as they were loaded."""

from __future__ import annotations

from typing import Any

from transformers import GenerationConfig, PreTrainedModel


class VerbatimGenerationConfig(GenerationConfig):
    """Generation settings that skip validation when they are saved.

    transformers loads a temperature without `do_sample`, but refuses to save it (its issue 29988).
    Only the ids that end a turn are used here, not the sampling settings.
    """

    def validate(self, *_: Any, **__: Any) -> None:
        """Accept all settings."""


def keep_generation_config(model: PreTrainedModel) -> None:
    """Make `save_pretrained` write the model's generation settings without validating them."""
    if model.generation_config is not None:
        model.generation_config.__class__ = VerbatimGenerationConfig
