"""A small config of the same architecture as a config.json, to test a base on any machine.

Widths and counts become small. The features of the architecture stay: one layer of each kind in
order, windows and chunks that a short conversation exceeds, RoPE scaling, experts, latent ranks,
vision towers, special tokens. transformers' own config class reads the config.json first, which
resolves old field names and defaults.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import logging

from art_cli.errors import UsageError
from art_cli.preflight.small_model.widths import AT_MOST, KEY_HEADS, at_most, heads_of, rope_of

logging.set_verbosity_error()

DROPPED = ("quantization_config", "dtype", "torch_dtype", "_name_or_path", "auto_map")
BROKEN = (
    *(ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, IndexError),
    StrictDataclassError,  # a field of the wrong type
)

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "layers")
MOST_LAYERS = 8
LEADING = (  # fields that count layers of one kind at the beginning
    *("first_k_dense_replace", "num_dense_layers", "max_window_layers", "num_hash_layers"),
    *("moe_layer_start_index",),
)
TRAILING = ("num_kv_shared_layers",)  # likewise at the end
INDEXES = ("_layers", "_ids", "_indices", "_idxs", "_indexes")  # suffixes of lists of layers


def shrunk(config: dict[str, Any], vocab_size: int | None = None) -> PreTrainedConfig:
    """Return a small config of the architecture, with this vocabulary size or its own.

    Raises UsageError if transformers cannot create such a config.
    """
    whole = as_transformers_reads(config)
    try:
        return type(whole)(**_small(whole, config, vocab_size))
    except BROKEN as e:
        raise no_model(e) from e


def as_transformers_reads(config: dict[str, Any]) -> PreTrainedConfig:
    """Return transformers' config object of a config.json, without fields about weight storage.

    Raises UsageError if transformers cannot create it.
    """
    known = {name: value for name, value in config.items() if name not in DROPPED}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(known), encoding="utf-8")
        try:
            return AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except BROKEN as e:
            raise no_model(e) from e


def no_model(error: Exception) -> UsageError:
    """Return the error for a config.json that transformers cannot make a model of."""
    said = " ".join(str(error).split())
    return UsageError(f"model.base: its config.json makes no language model: {said:.300}")


def _small(
    config: PreTrainedConfig, given: dict[str, Any], vocab_size: int | None
) -> dict[str, Any]:
    """Return the fields of a config and its sub-configs for a small one of the same class.

    Fields that the class derives from others are left out, so it derives them again.
    """
    own = {config.attribute_map.get(field.name, field.name) for field in fields(config)}
    own |= {"per_layer_config", *(name for name in given if name in (*AT_MOST, *KEY_HEADS))}
    own -= set(DROPPED)
    whole = {name: value for name, value in config.to_dict().items() if name in own}
    small = _of_fewer_layers(whole)
    small |= {
        name: at_most(value, AT_MOST[name])
        for name, value in small.items()
        if name in AT_MOST and not _is_without_effect(name, whole)
    }
    small |= heads_of(whole, small)
    if whole.get("rope_parameters"):
        small["rope_parameters"] = rope_of(whole, small)
    for name in config.sub_configs:
        inner = getattr(config, name, None)
        if isinstance(inner, PreTrainedConfig):
            spoken = name in ("text_config", "decoder", "vlm_config")
            small[name] = {
                **_small(inner, given.get(name) or {}, vocab_size if spoken else None),
                "model_type": inner.model_type,
            }
    return small | (_vocabulary(small, vocab_size) if vocab_size else {})


def _is_without_effect(name: str, whole: dict[str, Any]) -> bool:
    """Return whether a window is at least as long as any text."""
    longest = whole.get("max_position_embeddings")
    return name == "sliding_window" and bool(longest and (whole[name] or 0) >= longest)


# -- layers --------------------------------------------------------------------------------


def _of_fewer_layers(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the fields for the first layer of each kind, and at least two layers."""
    name = next((name for name in LAYERS if isinstance(whole.get(name), int)), None)
    lists = [v for k, v in whole.items() if k in ("layer_types", "layers_block_type") and v]
    count = whole[name] if name else len(lists[0]) if lists else 0
    if not count:
        return dict(whole)
    patterns = {k: p for k, v in whole.items() if (p := _pattern(k, v, count)) is not None}
    if "attn_layer_period" in whole and not lists:
        kept = list(range(min(count, AT_MOST["attn_layer_period"])))
    else:
        kinds = list(zip(*patterns.values(), strict=True)) or [()] * count
        kept = [i for i, kind in enumerate(kinds) if _is_new(kind, kinds[:i])][:MOST_LAYERS]
        kept = sorted({*kept, *[i for i in range(count) if i not in kept][: max(0, 2 - len(kept))]})
    small = dict(whole)
    for field, pattern in patterns.items():
        chosen = [pattern[index] for index in kept]
        if field in (*LEADING, *TRAILING):
            small[field] = sum(chosen)
        elif field == "per_layer_config":
            small[field] = {i: each for i, each in enumerate(chosen) if each}
        elif pattern == list(whole[field]):
            small[field] = chosen
        else:
            small[field] = [i for i, is_in in enumerate(chosen) if is_in]
    if "attention_types" in small:  # GPT-Neo: [[kinds, repetitions]]
        small["attention_types"] = [[small["attention_types"][0][0][: len(kept)], 1]]
    return small | ({name: len(kept)} if name else {})


def _is_new(kind: tuple[Any, ...], before: list[tuple[Any, ...]]) -> bool:
    """Return whether to keep a layer of this kind. Layers that share weights are kept twice."""
    return before.count(kind) < (2 if "hybrid" in kind else 1)


def _pattern(name: str, value: Any, count: int) -> list[Any] | None:
    """Return a field's value for each layer, or None if the field is not about layers."""
    if name in LEADING and isinstance(value, int):
        return [index < value for index in range(count)]
    if name in TRAILING and isinstance(value, int):
        return [index >= count - value for index in range(count)]
    if name == "per_layer_config" and value:
        by_index = {int(index): each for index, each in value.items()}
        return [by_index.get(index) for index in range(count)]
    if not isinstance(value, list | tuple) or name.endswith("token_id"):
        return None
    is_indexes = all(type(each) is int and 0 <= each < count for each in value)
    if name.endswith(INDEXES) and is_indexes and list(value) == sorted(set(value)):
        return [index in value for index in range(count)]
    return list(value) if len(value) == count else None


def _vocabulary(small: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the vocabulary size, and special tokens limited to it."""
    names = ("vocab_size", "vocab_size_per_layer_input", "decoder_vocab_size")
    found: dict[str, Any] = {name: size for name in names if small.get(name)}
    for name, value in small.items():
        if not name.endswith(("_token_id", "_token_index")):
            continue
        if isinstance(value, list):
            found[name] = [each for each in value if each < size] or [size - 1]
        elif isinstance(value, int) and value >= size:
            found[name] = size - 1
    return found
