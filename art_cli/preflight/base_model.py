"""Facts about a base from its config.json and tokenizer, before its weights are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from art_cli.chat.render import Renderer
from art_cli.config.load import LoadedExperiment
from art_cli.config.sections.model import ModelConfig
from art_cli.envs.tools import schemas_of
from art_cli.errors import ConfigError, UsageError
from art_cli.models.classes import class_of
from art_cli.preflight.certified import is_certified
from art_cli.preflight.check_result import CheckResult, failed, ok, skipped, warning
from art_cli.preflight.memory.shape import UnknownSizeError, local_config, read_config
from art_cli.preflight.small_model.build import vocabulary_of
from art_cli.preflight.small_model.config import as_transformers_reads
from art_cli.preflight.small_model.widths import depends_on_length
from art_cli.rollout.env_class import env_of
from art_cli.training.trainers.router_load import check_router

LONGEST = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
# RoPE types that reach `factor` times as far as the positions they were trained on.
STRETCHING = ("yarn", "linear")
TOKENIZERS = ("tokenizer", "vocab", "spiece", "tekken")  # prefixes of tokenizer file names
PLAIN = "take its unquantized weights; model.quantize: 4bit makes a base small when it is loaded"


def check_base(loaded: LoadedExperiment) -> list[str]:
    """Return warnings about a config's base, before it is loaded.

    Raises ConfigError with every problem and its place, UsageError if there is no such model.
    """
    found = list(findings_of(loaded))
    if wrong := [f for f in found if f.status == "failed"]:
        raise ConfigError(
            [f"{f.where}: {f.what}" + (f"; {f.todo}" if f.todo else "") for f in wrong]
        )
    return [f.what for f in found if f.status in ("warning", "skipped")]


def findings_of(loaded: LoadedExperiment) -> Iterator[CheckResult]:
    """Yield check results for the base, and for other settings that must fit it.

    `tiny` has no results. Raises UsageError if there is no such model.
    """
    base = loaded.experiment.model.base
    if base == "tiny":
        return
    where = _place(loaded, "model.base")
    try:
        config = read_config(base)
    except UnknownSizeError as e:
        return (yield skipped(f"{base} was not looked at: {e}"))
    found = list(of_config(base, config, where))
    yield from found
    if any(f.status == "failed" for f in found):
        return
    whole = as_transformers_reads(config)
    yield from _of_length(loaded, base, whole)
    yield from _of_routers(loaded, whole)
    tokenizer, missing = tokenizer_of(base)
    if tokenizer is None:
        yield skipped(f"its chat template was not looked at: {missing}")
    else:
        tools = schemas_of(env_of(loaded.experiment.env))
        yield from of_tokenizer(loaded.experiment.model, whole, tokenizer, tools, where)
    if not is_certified(config):
        yield warning(
            f"{base} has not been certified by this version of art on this machine: `art certify "
            f"{base}` tries its architecture in seconds, on a CPU"
        )


def of_config(base: str, config: dict[str, Any], where: str = "") -> Iterator[CheckResult]:
    """Yield the check results that follow from a config.json alone."""
    family = config.get("model_type")
    if family not in CONFIG_MAPPING:
        own = ", and its own code is not run" if "auto_map" in config else ""
        what = (
            f"model.base: {base} is of model_type {family!r}, which transformers "
            f"{version('transformers')} does not know{own}"
        )
        return (yield failed(what, where, "take a base that transformers has a class for"))
    if quantization := config.get("quantization_config"):
        how = quantization.get("quant_method", "?") if isinstance(quantization, dict) else "?"
        what = f"the weights of {base} are quantized ({how}), and such cannot be trained"
        yield replace(failed(f"model.base: {what}", where, PLAIN), check="weights")
    try:
        whole = as_transformers_reads(config)
        model_class = class_of(whole)
    except UsageError as e:
        return (yield failed(str(e), where))
    except ValueError as e:
        return (yield failed(f"model.base: {e}", where, "take a causal language model"))
    if getattr(whole, "is_encoder_decoder", False):
        what = f"model.base: {base} ({model_class.__name__}) has an encoder, which is not trained"
        yield failed(what, where, "take a decoder: a causal language model")
    elif "vision_config" in whole.sub_configs or "audio_config" in whole.sub_configs:
        yield warning(
            f"{base} ({model_class.__name__}) reads images or sound, too: only text is given to "
            "it, and what reads them is not trained"
        )
    else:
        yield ok(f"{base} is a {model_class.__name__}")


def _of_length(
    loaded: LoadedExperiment, base: str, whole: PreTrainedConfig
) -> Iterator[CheckResult]:
    longest, asked = longest_of(whole), loaded.experiment.engine.max_model_len
    if longest is None or asked <= longest:
        return
    key = "engine.max_model_len"
    written = loaded.origins[key] != "default"
    yield failed(
        f"{key}: {base} reads at most {longest} tokens, got {asked}",
        _place(loaded, key if written else "model.base"),
        f"{'set' if written else 'add'} {key}: {longest}",
    )


def _of_routers(loaded: LoadedExperiment, whole: PreTrainedConfig) -> Iterator[CheckResult]:
    """Check that an auxiliary router loss has a router, on the base without its weights."""
    coef, key = loaded.experiment.train.router_aux_loss_coef, "train.router_aux_loss_coef"
    if not coef:
        return
    with torch.device("meta"):
        model = class_of(whole)._from_config(whole)
    try:
        check_router(model, coef)
    except UsageError as e:
        what, _, todo = str(e).partition("; ")
        yield failed(what, _place(loaded, key), todo)


def longest_of(config: PreTrainedConfig) -> int | None:
    """Return the maximum number of tokens that the base's positions allow, with RoPE scaling.

    If RoPE depends on the length of a text, return the length from which it changes. Return None if
    the config has no limit, as for recurrent layers.
    """
    text: Any = config.get_text_config()
    named = [getattr(text, name, None) for name in LONGEST]
    reach = next((n for n in named if isinstance(n, int) and n > 0), None)
    rope = getattr(text, "rope_parameters", None) or {}
    ropes = [each for each in rope.values() if isinstance(each, dict)] or [rope]
    if reach is None:
        return None
    for each in ropes:
        factor, trained = each.get("factor"), each.get("original_max_position_embeddings")
        if depends_on_length(each):
            return trained or reach
        if each.get("rope_type", each.get("type")) in STRETCHING and factor:
            reach = max(reach, int((trained or reach) * factor))
    return reach


def of_tokenizer(
    model: ModelConfig,
    whole: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    tools: list[dict[str, Any]],
    where: str = "",
) -> Iterator[CheckResult]:
    """Yield check results for the tokenizer and its chat template, in an env with these tools."""
    base = model.base
    size, rows = vocabulary_of(tokenizer), getattr(whole.get_text_config(), "vocab_size", None)
    if isinstance(rows, int) and size > rows:
        yield failed(
            f"model.base: the tokenizer of {base} has {size} tokens, and the model {rows} "
            "embeddings, so some token ids have no embedding",
            where,
            "take the tokenizer that belongs to the weights",
        )
    if not tokenizer.chat_template:
        yield failed(
            f"model.base: {base!r} has no chat template",
            where,
            "use an instruct model, or add chat_template.jinja to its folder",
        )
        return
    try:
        ends = eos_of(base, whole)
        renderer = Renderer(tokenizer, tools, ends, model.tool_format, model.template_args)
    except UsageError as e:
        return (yield failed(f"model.base: {base}: {e}", where))
    if renderer.tools_by_hand:
        yield warning(
            f"the chat template of {base} shows no tools: they are described in the system message"
        )


def eos_of(base: str, config: PreTrainedConfig) -> list[int]:
    """Return the ids that end a text by the base's own settings, as a loaded model has them."""
    is_here = local_config(base) is not None
    try:
        settings: Any = GenerationConfig.from_pretrained(base, local_files_only=is_here)
    except (OSError, ValueError):  # no generation config
        settings = config.get_text_config()
    eos = getattr(settings, "eos_token_id", None)
    return [eos] if isinstance(eos, int) else list(eos or [])


ANY_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look an order up.",
        "parameters": {
            "type": "object",
            "properties": {"order": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["order"],
        },
    },
}


def tokenizer_of(base: str) -> tuple[PreTrainedTokenizerBase | None, str]:
    """Return the tokenizer from this machine or the hub, or None and the reason."""
    is_here = local_config(base) is not None  # then skip the hub, whose timeout is a minute
    if os.path.isdir(base) and not any(p.name.startswith(TOKENIZERS) for p in Path(base).iterdir()):
        return None, f"no tokenizer in {base}"  # transformers would create an empty one
    try:
        return AutoTokenizer.from_pretrained(base, local_files_only=is_here), ""
    except (OSError, ValueError, KeyError, ImportError) as e:
        return None, f"no tokenizer of {base}: {str(e).strip().partition(chr(10))[0]}"


def _place(loaded: LoadedExperiment, key: str) -> str:
    return {"override": "command line"}.get(loaded.origins[key], loaded.origins[key])
