"""Dimensions of a base from its config.json alone. No weights are read or downloaded."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from art_cli.config.sections.model import DEFAULT_TARGETS
from art_cli.errors import UsageError
from art_cli.models.base_folder import check_base_folder
from art_cli.preflight.memory.dimensions import Shape

if TYPE_CHECKING:
    from art_cli.models.roles import ModelPart

HUB = "https://huggingface.co"
SECONDS = 5.0  # for the hub to answer
# Families whose parameters are counted here. For others, the model is built without weights.
QKV_BIAS = {"llama": False, "mistral": False, "qwen2": True, "qwen3": False}


class UnknownSizeError(Exception):
    """The dimensions are unknown. The message says why."""


def shape_of_base(base: str, targets: Sequence[str] = DEFAULT_TARGETS) -> Shape:
    """Return a base's dimensions. `targets` are those of its adapter.

    Raises UnknownSizeError. Raises UsageError if there is certainly no such model, or it has no
    such targets.
    """
    return shape_of(read_config(base), targets)


def read_config(base: str) -> dict[str, Any]:
    """Read config.json from a folder, the Hugging Face cache or the hub.

    Raises UnknownSizeError, UsageError.
    """
    check_base_folder(base)
    file = local_config(base)
    if file is None:
        return _from_hub(base)
    try:
        return _object(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"model.base: {file} cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise UsageError(f"model.base: {file} holds no JSON object: {e}") from e


def local_config(base: str) -> Path | None:
    """Return the path of config.json on this machine, or None if only the hub may have it.

    Raises UsageError.
    """
    return Path(base) / "config.json" if os.path.isdir(base) else _cached(base)


def shape_of(config: dict[str, Any], targets: Sequence[str] = DEFAULT_TARGETS) -> Shape:
    """Return the dimensions that a config.json gives. Raises UnknownSizeError, UsageError."""
    config = config | (config.get("text_config") or {})
    family = config.get("model_type", "?")
    is_counted = family in QKV_BIAS and set(targets) == set(DEFAULT_TARGETS)
    try:
        return counted(config) if is_counted else measured(config, targets)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UnknownSizeError(f"its config.json ({family}) says too little: {e!r}") from e


def counted(config: dict[str, Any]) -> Shape:
    """Count the parameters by arithmetic, for the families of QKV_BIAS."""
    d = _dimensions(config)
    h, f, v, layers = d["hidden"], d["intermediate"], d["vocab"], d["num_layers"]
    q, k = d["heads"] * d["head_dim"], d["kv_heads"] * d["head_dim"]
    family = config["model_type"]
    maps = [(h, q), (h, k), (h, k), (q, h), (h, f), (h, f), (f, h)]
    linear = layers * sum(a * b for a, b in maps)
    norms = layers * (2 * h + (2 * d["head_dim"] if family == "qwen3" else 0)) + h
    biases = q + 2 * k if config.get("attention_bias", QKV_BIAS[family]) else 0
    if family in ("llama", "qwen3") and config.get("attention_bias"):
        biases += h  # of o, too
    if config.get("mlp_bias"):
        biases += 2 * f + h
    embeddings = v * h * (1 if config.get("tie_word_embeddings", False) else 2)
    return Shape(
        **d,
        has_head_norms=family == "qwen3",
        num_params=linear + norms + layers * biases + embeddings,
        num_linear=linear,
        linear_sides=layers * sum(a + b for a, b in maps),
    )


def measured(config: dict[str, Any], targets: Sequence[str] = DEFAULT_TARGETS) -> Shape:
    """Count the parameters of a model built without weights. Imports torch, which takes seconds."""
    import torch
    from transformers import AutoConfig

    from art_cli.models.adapter import chosen_parts
    from art_cli.models.classes import class_of
    from art_cli.models.roles import parts_of

    with torch.device("meta"):
        whole = AutoConfig.for_model(**config)
        model = class_of(whole)._from_config(whole)
    head = model.get_output_embeddings()
    maps = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    text = model.config.get_text_config()  # some families compute its number of layers
    sizes = _dimensions(text.to_dict() | {"num_hidden_layers": text.num_hidden_layers})
    chosen = chosen_parts(model, targets)
    if any(p.is_fused for p in parts_of(model)):
        sizes |= _mixture(sizes, parts_of(model), model.config)
    return Shape(
        **sizes,
        has_head_norms=any(name.endswith("q_norm") for name, _ in model.named_modules()),
        num_params=sum(p.numel() for p in model.parameters()),
        num_linear=sum(m.weight.numel() for m in maps),
        linear_sides=sum(p.sides for p in chosen),
        routed_sides=sum(p.sides for p in chosen if p.is_fused),
    )


def _mixture(sizes: dict[str, int], parts: list[ModelPart], config: Any) -> dict[str, int]:
    """Return the dimensions of the experts, and the mean width of dense MLPs over all layers."""
    from art_cli.models.routing import experts_per_token

    fused = [p.tensor for p in parts if p.is_fused]
    down = [p.tensor for p in parts if p.is_fused and p.name.endswith("down_proj")]
    dense = [p.tensor for p in parts if p.role == "mlp" and p.tensor.shape[0] == sizes["hidden"]]
    return {
        "intermediate": sum(w.shape[1] for w in dense) // sizes["num_layers"],
        "experts": down[0].shape[0],
        "experts_per_token": experts_per_token(config),
        "expert_width": down[0].numel() // down[0].shape[0] // sizes["hidden"],
        "num_routed": sum(w.numel() for w in fused),
    }


def _dimensions(config: dict[str, Any]) -> dict[str, int]:
    heads = config["num_attention_heads"]
    return {
        "num_layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "intermediate": config.get("intermediate_size") or 0,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "vocab": config["vocab_size"],
    }


def _cached(base: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(base, "config.json")
    except HFValidationError:
        raise UsageError(
            f"model.base: {base!r} is neither a folder nor the id of a model on the hub "
            "(OWNER/NAME)"
        ) from None
    return Path(found) if isinstance(found, str) else None


def _from_hub(base: str) -> dict[str, Any]:
    from huggingface_hub import get_token
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        raise UnknownSizeError(f"{base} is not in the cache, and HF_HUB_OFFLINE is set")
    url = f"{os.environ.get('HF_ENDPOINT', HUB).rstrip('/')}/{base}/resolve/main/config.json"
    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=SECONDS, follow_redirects=True)
    except httpx.HTTPError as e:
        why = str(e) or type(e).__name__
        raise UnknownSizeError(
            f"{base} is not in the cache, and the hub does not answer: {why}"
        ) from e
    if answer.status_code == 404:
        raise UsageError(f"model.base: the hub has no model {base!r} (or it has no config.json)")
    if answer.status_code in (401, 403):
        raise UnknownSizeError(
            f"the hub does not show {base} (HTTP {answer.status_code}): it is private, gated or "
            "not there; set HF_TOKEN, or run `hf auth login`"
        )
    try:
        answer.raise_for_status()
        return _object(answer.text)
    except (httpx.HTTPError, ValueError) as e:
        raise UnknownSizeError(f"the hub gave no config.json of {base}: {e}") from e


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"it is a {type(found).__name__}")
    return found
