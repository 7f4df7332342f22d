"""Load the model of the config: a hub id, a folder, or a newly created tiny model."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from art_cli.config.auto import device_of, dtype_of
from art_cli.config.sections.model import ModelConfig
from art_cli.errors import PreflightError, UsageError
from art_cli.models.base_folder import check_base_folder
from art_cli.models.classes import class_of
from art_cli.models.forward.products import use_quickest
from art_cli.models.generation import keep_generation_config
from art_cli.models.policy import Policy
from art_cli.models.tiny import make as make_tiny

CACHE_LINE = 64  # bytes; torch aligns its own tensors to this

logging.disable_progress_bar()
logging.set_verbosity_error()


def load_policy(cfg: ModelConfig, texts: Iterable[str], seed: int) -> Policy:
    """Return the base that the config names, without an adapter.

    `texts` train the tokenizer of `tiny`. Raises UsageError if the folder or hub id cannot be
    loaded, PreflightError if there is no such device.
    """
    has_gpu = torch.cuda.is_available()
    if cfg.device == "cuda" and not has_gpu:
        raise PreflightError(
            "model.device is cuda, but torch sees no CUDA device; use model.device=cpu or auto"
        )
    if cfg.base == "tiny":
        model, tokenizer = make_tiny(cfg.tiny, texts, seed)
    elif cfg.quantize:
        device = "cuda" if has_gpu and cfg.device != "cpu" else "cpu"
        dtype = getattr(torch, dtype_of(cfg, on_gpu=True))
        settings = _quantization(cfg.quantize, device, dtype)
        model, tokenizer = _from_pretrained(cfg.base, dtype=dtype, **settings)
        return Policy(model, tokenizer)  # a quantized model is loaded directly onto its device
    else:
        model, tokenizer = _from_pretrained(cfg.base, dtype="auto")
    device = device_of(cfg.device, model.num_parameters(), has_gpu=has_gpu)
    dtype = getattr(torch, dtype_of(cfg, on_gpu=device == "cuda"))
    model = cast("PreTrainedModel", model.to(device=device))  # type: ignore[arg-type]
    # Module.to(dtype) would make complex buffers real (Llama 4's positions of image patches).
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
        # A matrix product may round differently if its operand is not aligned to a cache line, as
        # weights read from a file may be. A resumed run would then not be bit-identical.
        if tensor.data_ptr() % CACHE_LINE:
            tensor.data = tensor.data.clone()
    use_quickest(model)
    return Policy(model, tokenizer)


def _quantization(bits: str, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """Return the settings that quantize the base, except its head.

    They use NF4 (2305.14314) or LLM.int8 (2208.07339). Raises PreflightError without a GPU or the
    package.
    """
    if device != "cuda":
        raise PreflightError(f"model.quantize={bits} needs a CUDA device; remove it to train here")
    if find_spec("bitsandbytes") is None:
        raise PreflightError(
            f"model.quantize={bits} needs bitsandbytes: pip install 'art-cli[quantize]'"
        )
    quantization = BitsAndBytesConfig(
        load_in_4bit=bits == "4bit",
        load_in_8bit=bits == "8bit",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": quantization, "device_map": {"": 0}}


def _from_pretrained(base: str, **settings: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    check_base_folder(base)
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        if not tokenizer.chat_template:
            raise UsageError(
                f"model.base: {base!r} has no chat template; use an instruct model, or add "
                "chat_template.jinja to its folder"
            )
        model_class = class_of(AutoConfig.from_pretrained(base))
        model, found = model_class.from_pretrained(base, output_loading_info=True, **settings)
    except (OSError, ValueError, KeyError, StrictDataclassError) as e:
        first = str(e).strip().splitlines()[0]
        raise UsageError(
            f"model.base: cannot load {base!r} (neither a folder with a model nor a hub id that "
            f"can be reached): {first}"
        ) from e
    if getattr(
        model, "_hf_peft_config_loaded", False
    ):  # a hub id: check_base_folder checks folders
        raise UsageError(
            f"model.base: {base!r} holds an adapter beside its weights, and transformers loads "
            "both; take the model that the adapter is for"
        )
    if found["missing_keys"]:
        names = ", ".join(sorted(found["missing_keys"])[:3])
        raise UsageError(f"model.base: {base!r} has no weights for {names}; they would be random")
    keep_generation_config(model)
    return model, tokenizer
