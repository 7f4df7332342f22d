"""Merging of an adapter into its base, while writing the weights to disk.

The model's own weights are not changed, because merging and unmerging in place would round them.
Weights are merged and written one file at a time, so memory never holds a second copy of the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict
from transformers.utils import logging

from art_cli.errors import TrainerError, UsageError
from art_cli.models.classes import class_of
from art_cli.models.experts import delta_weight
from art_cli.models.generation import keep_generation_config
from art_cli.models.saved_weights import damage_told

FILE_SIZE = 2 * 2**30  # approximate bytes of weights in one file
LAYER = re.compile(r".*?\.\d+\.")
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@torch.no_grad()
def write_merged(adapted: PeftModel, folder: Path) -> None:
    """Write all weights, named as transformers saves those of the base.

    Raises OSError, and TrainerError if a merged weight is not finite.
    """
    base: Any = adapted.get_base_model()
    layers = _adapter_layers(base)
    files = list(_files(_own_weights(base)))
    place: dict[str, str] = {}
    total = 0
    for i, weights in enumerate(files, 1):
        name = f"model-{i:05}-of-{len(files):05}.safetensors" if len(files) > 1 else WHOLE
        merged = {k: _merged(k, w, layers.get(k)) for k, w in weights.items()}
        merged = {k: w.contiguous() for k, w in revert_weight_conversion(base, merged).items()}
        save_file(merged, folder / name, metadata={"format": "pt"})
        place |= dict.fromkeys(merged, name)
        total += sum(map(_size, merged.values()))
        del merged  # frees memory before the next one
    if len(files) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": place}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def merge_folder(base: str, adapter: Path, to: Path) -> None:
    """Write a base with the adapter in a folder merged into it, with its configs, in its dtype.

    Raises UsageError if the base cannot be loaded, CheckpointError if the adapter cannot. Raises
    OSError, TrainerError.
    """
    logging.disable_progress_bar()
    try:
        loaded = class_of(AutoConfig.from_pretrained(base)).from_pretrained(base, dtype="auto")
    except (OSError, ValueError) as e:
        first = str(e).strip().splitlines()[0]
        raise UsageError(f"cannot load the base {base!r} to merge into: {first}") from e
    keep_generation_config(loaded)
    loaded.config.save_pretrained(to)
    loaded.generation_config.save_pretrained(to)
    with damage_told(adapter):
        adapted = PeftModel.from_pretrained(loaded, str(adapter))
    write_merged(adapted, to)


def _adapter_layers(base: PreTrainedModel) -> dict[str, Any]:
    """Return the adapter's layers by the name of the parameter that each adds to."""
    return {
        f"{_plain(name)}.{getattr(layer, 'parameter_name', 'weight')}": layer
        for name, layer in base.named_modules()
        if isinstance(layer, BaseTunerLayer)
    }


def _plain(name: str) -> str:
    """Return the name that a weight or module had before the adapter wrapped it."""
    return re.sub(r"\.base_layer(?=\.|$)", "", name)


def _own_weights(base: PreTrainedModel) -> dict[str, Tensor]:
    weights = {_plain(k): w for k, w in base.state_dict().items() if ".lora_" not in k}
    for name in base._keys_to_ignore_on_save or ():
        weights.pop(name, None)
    return remove_tied_weights_from_state_dict(weights, base)


def _files(weights: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the weights of each file.

    A layer is never split, because several tensors of the model may be one tensor in the file.
    """
    layers: dict[str, dict[str, Tensor]] = {}
    for name, weight in weights.items():
        layer = LAYER.match(name)
        layers.setdefault(layer[0] if layer else name, {})[name] = weight
    file: dict[str, Tensor] = {}
    for layer in layers.values():
        if file and sum(map(_size, [*file.values(), *layer.values()])) > FILE_SIZE:
            yield file
            file = {}
        file |= layer
    yield file


def _merged(name: str, weight: Tensor, layer: Any) -> Tensor:
    """Return the weight on the CPU, with the addition of the adapter's layer."""
    if layer is None:
        return weight.cpu()
    merged = (weight.float() + delta_weight(layer).float()).to(weight.dtype)
    if not merged.isfinite().all():
        raise TrainerError(f"{name} is not finite once the adapter is merged into it")
    return merged.cpu()


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
