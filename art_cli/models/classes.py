"""The class of transformers that loads and saves a checkpoint."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SPEAKS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # ends of classes' names


def class_of(config: PreTrainedConfig) -> Any:
    """Return the class that a base's weights are saved by, eyes and all.

    Raises ValueError where it is no language model.
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
