"""LoRA by PEFT, on the parts of a base that `model.adapter.target_modules` names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from art_cli.config.sections.model import DEFAULT_TARGETS, AdapterConfig
from art_cli.errors import UsageError
from art_cli.models.experts import fits, use_own_experts
from art_cli.models.lora import use_own_linear
from art_cli.models.roles import LINEAR, ModelPart, parts_of

KEY = "model.adapter.target_modules"
ROLES = (*DEFAULT_TARGETS, "experts")


def with_adapter(base: PreTrainedModel, cfg: AdapterConfig) -> PeftModel:
    """Add LoRA to the parts that the config names, in float32 for any dtype of the base.

    Raises UsageError if the base has no such parts, or they cannot be adapted.
    """
    parts = chosen_parts(base, cfg.target_modules)
    modules, parameters = _targets(base, parts)
    lora = LoraConfig(
        r=cfg.rank,
        lora_alpha=cfg.alpha,  # type: ignore[arg-type]
        target_modules=modules,
        target_parameters=parameters or None,
        lora_dropout=0.0,
        fan_in_fan_out=any(isinstance(p.module, Conv1D) for p in parts),
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(base, lora)
    assert isinstance(adapted, PeftModel)
    assert adapted_names(adapted) == {p.name for p in parts}, "PEFT adapts other parts"
    use_own_linear(adapted)
    use_own_experts(adapted)
    _share(adapted)
    return adapted


def _share(adapted: PeftModel) -> None:
    """Give modules that share one weight the same adapter, for a base that repeats its blocks.

    With separate adapters, those of the unused copies would not be trained, and no merged weight
    could represent both.
    """
    first: dict[int, Any] = {}
    for layer in adapted.get_base_model().modules():
        if isinstance(layer, BaseTunerLayer):
            weight = getattr(layer.get_base_layer(), getattr(layer, "parameter_name", "weight"))
            same: Any = first.setdefault(id(weight), layer)
            layer.lora_A, layer.lora_B = same.lora_A, same.lora_B


def adapted_names(adapted: PeftModel) -> set[str]:
    """Return the names of the base's parts that have LoRA, like `ModelPart.name`."""
    names = set()
    for name, layer in adapted.get_base_model().named_modules():
        if isinstance(layer, BaseTunerLayer):
            plain = name.replace(".base_layer", "")
            is_linear = isinstance(layer.get_base_layer(), LINEAR)
            names.add(plain if is_linear else f"{plain}.{getattr(layer, 'parameter_name', '?')}")
    return names


def chosen_parts(base: PreTrainedModel, targets: Iterable[str]) -> list[ModelPart]:
    """Return the parts that `targets` name, in the order of the model. Raises UsageError."""
    parts = [p for p in parts_of(base) if p.role != "router"]
    names: set[str] = set()
    for target in targets:
        found = {p.name for p in parts if _is_meant(p, target)}
        if not found and target not in DEFAULT_TARGETS:
            raise UsageError(_nothing(base, parts, target))
        names |= found
    chosen = [p for p in parts if p.name in names]
    if not chosen:
        raise UsageError(_nothing(base, parts, ", ".join(targets)))
    _check_experts(base, chosen)
    return chosen


def _is_meant(part: ModelPart, target: str) -> bool:
    if target in ROLES:
        return part.role == target
    return fnmatchcase(part.name, target) or fnmatchcase(part.name, f"*.{target}")


def _nothing(base: PreTrainedModel, parts: list[ModelPart], target: str) -> str:
    """Return an error message for a target that matches nothing, with the available parts."""
    kind, outside = type(base).__name__, []
    inside = {p.name for p in parts}
    for name, module in base.named_modules():
        if isinstance(module, LINEAR) and name not in inside:
            outside += [name] * (fnmatchcase(name, target) or fnmatchcase(name, f"*.{target}"))
    if outside:
        return (
            f"{KEY}: {target!r} names {outside[0]} of {kind}, which cannot be adapted: only linear "
            "layers of the text decoder can, except routers"
        )
    has = "; ".join(
        f"{role}: {', '.join(names)}"
        for role in ROLES
        if (names := dict.fromkeys(_short(p.name) for p in parts if p.role == role))
    )
    return (
        f"{KEY}: {target!r} finds nothing in {kind}. It has {has}. Write one of these words, or "
        "a name, with * for any part of it"
    )


def _short(name: str) -> str:
    """Return the part of a name after its layer number."""
    return re.sub(r"\.\d+\.", ".*.", re.sub(r"^.*?\.\d+\.", "", name))


def _check_experts(base: PreTrainedModel, chosen: list[ModelPart]) -> None:
    first = next((p.module for p in chosen if p.is_fused), None)
    if first is not None and not fits(first):
        raise UsageError(
            f"{KEY}: the experts of {type(base).__name__} ({type(first).__name__}) are stored or "
            "computed in a way that this program cannot adapt; leave experts out"
        )


# ------------------------------------------------------------------ as PEFT names them


def _targets(base: PreTrainedModel, parts: list[ModelPart]) -> tuple[list[str], list[str]]:
    """Return PEFT's `target_modules` and `target_parameters` for these parts.

    For a family with experts, PEFT takes `gate_proj` for the fused experts, which had that name in
    transformers 4. A dense linear layer of that name is therefore given by its weight, to the same
    effect.
    """
    linear = [p.name for p in parts if not p.is_fused]
    modules = _shortest(linear, [name for name, _ in base.named_modules()])
    renamed = {m for m in modules if _is_renamed(base, m)}
    by_weight = [n for n in linear if any(n == m or n.endswith(f".{m}") for m in renamed)]
    if by_weight and getattr(base, "is_quantized", False):
        raise UsageError(
            f"{KEY}: the mlp of {type(base).__name__} cannot be adapted where model.quantize is "
            "set; write targets: [attention]"
        )
    parameters = [f"{name}.weight" for name in by_weight]
    parameters += [p.name for p in parts if p.is_fused]
    parameters = _shortest(parameters, [name for name, _ in base.named_parameters()])
    return [m for m in modules if m not in renamed], parameters


def _is_renamed(base: PreTrainedModel, module: str) -> bool:
    config = LoraConfig(target_modules=[module])
    try:
        convert_peft_config_for_transformers(config, base, None)
    except ValueError:  # transformers 4 expects other modules beside it
        return True
    assert config.target_modules is not None
    return module not in config.target_modules


def _shortest(wanted: list[str], names: list[str]) -> list[str]:
    """Return the shortest name suffixes that match exactly the `wanted` ones among `names`."""
    chosen = set(wanted)
    others = {end for name in names if name not in chosen for end in _ends(name)}
    return list(dict.fromkeys(next(e for e in _ends(n) if e not in others) for n in wanted))


def _ends(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[i:]) for i in range(len(words) - 1, -1, -1)]
