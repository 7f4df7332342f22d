"""From a base's config to the class of transformers that its weights are saved by."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig

SPEAKS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # ends of classes' names


def class_of(config: PreTrainedConfig) -> Any:
    """Return the class that the config names, or the one for its family.

    A wrapper's own class, not that of its text alone: names of weights and what is tied are as in
    its files, and as whoever else loads them has them. Raises ValueError where there is none.
    """
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if name.endswith(SPEAKS) and isinstance(found, type):
            return found
    autos: tuple[Any, ...] = (AutoModelForCausalLM, AutoModelForImageTextToText)
    if "vision_config" in config.sub_configs:
        autos = autos[::-1]
    for auto in autos:
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    raise ValueError(f"{config.model_type} is no language model of transformers")
