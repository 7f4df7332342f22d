"""The transformers class that loads and saves a checkpoint."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SPEAKS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # suffixes of class names


def class_of(config: PreTrainedConfig) -> Any:
    """Return the model class to load and save a base with, including its vision tower.

    Raises ValueError if it is not a language model.
    """
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if name.endswith(SPEAKS) and isinstance(found, type):
            return found
    causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    auto: Any = AutoModelForCausalLM if causal else AutoModelForImageTextToText
    try:
        return auto._model_mapping[type(config)]
    except KeyError:
        raise ValueError(f"{config.model_type} is no language model of transformers") from None
