"""The model that is trained: a base, an adapter on it or not, and its tokenizer."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from art_cli.config.auto import dtype_of, recomputes
from art_cli.config.schema import AdapterConfig, ModelConfig
from art_cli.errors import PreflightError, UsageError
from art_cli.models.merge import write_merged
from art_cli.models.reading.attention import NAME as ATTENTION
from art_cli.models.reading.attention import Causal, Layout
from art_cli.models.reading.decoder import decode, fits, hidden_states
from art_cli.models.tiny import make as make_tiny

FINGERPRINT_SIZE = 4096  # weights

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()


class Policy:
    """A causal language model with what training needs of it.

    Raises UsageError for a model whose attention or head this program would compute wrongly.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.base = model
        self.model: PreTrainedModel | PeftModel = model
        self._reference: list[Tensor] | None = None
        self._decoder: Any = model.get_decoder()
        self._own_forward = False
        self.recomputes = False  # layers in the backward: train.gradient_checkpointing
        _check_attention(model)
        model.set_attn_implementation(ATTENTION)
        self.base.eval()  # no dropout: what is sampled and what is trained is one distribution
        _check_head(self)
        self._own_forward = fits(self._decoder) and _same_hidden(self)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.device

    @property
    def head(self) -> nn.Parameter:
        """The output embedding [V, D]; logits are hidden @ head.T."""
        return self.base.get_output_embeddings().weight  # type: ignore[union-attr, return-value]

    @property
    def trainable(self) -> list[nn.Parameter]:
        """What the optimizer changes, in a fixed order."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def has_adapter(self) -> bool:
        """Whether an adapter is trained rather than all weights."""
        return isinstance(self.model, PeftModel)

    @property
    def source(self) -> str:
        """The folder or hub id that the base was loaded from."""
        return str(self.base.name_or_path)

    @property
    def adapter_rank(self) -> int:
        """The rank of the adapter's matrices."""
        assert isinstance(self.model, PeftModel)
        config: Any = self.model.peft_config["default"]
        return config.r

    @property
    def has_reference(self) -> bool:
        """Whether the weights of step 0 are kept."""
        return self._reference is not None

    @property
    def eos_token_ids(self) -> list[int]:
        """Tokens that the model's own settings say end a text."""
        eos = self.base.generation_config.eos_token_id if self.base.generation_config else None
        return [eos] if isinstance(eos, int) else list(eos or [])

    def hidden(
        self,
        ids: Tensor,
        positions: Tensor,
        layout: Layout | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """Return the last hidden states [B, T, D] of ids [B, T] at positions [B, T].

        With `wanted` [S], those of a batch of one at these places: [S, D].
        """
        layout = layout or Causal()
        recompute = self.recomputes and torch.is_grad_enabled()
        if self._own_forward:
            return hidden_states(self._decoder, ids, positions, layout, wanted, recompute)
        hidden = decode(self._decoder, ids, positions, layout, recompute)
        return hidden if wanted is None else hidden[0, wanted]

    def to(self, device: str) -> None:
        """Move all of it."""
        self.model.to(device)  # type: ignore[arg-type]
        if self._reference:
            self._reference = [p.to(device) for p in self._reference]

    def recompute_layers(self, setting: Literal["auto", "on", "off"]) -> None:
        """Keep only each layer's input for the backward: train.gradient_checkpointing."""
        size = sum(p.numel() for p in self.base.parameters())
        self.recomputes = recomputes(setting, size, on_gpu=self.device.type == "cuda")

    def add_adapter(self, cfg: AdapterConfig, seed: int) -> None:
        """Put a fresh adapter on the base: float32, and without effect until it is trained."""
        torch.manual_seed(seed)
        self.model = with_adapter(self.base, cfg)
        self.base.eval()

    def save(self, folder: Path) -> None:
        """Write `save_weights` and the tokenizer. Raises OSError."""
        self.save_weights(folder)
        self.tokenizer.save_pretrained(str(folder))

    def save_weights(self, folder: Path) -> None:
        """Write the adapter, or all weights, as PEFT or transformers load them. Raises OSError."""
        with _transformers_attention(self.base):
            if isinstance(self.model, PeftModel):
                # "auto" would ask the hub whether the base's vocabulary was changed.
                self.model.save_pretrained(str(folder), save_embedding_layers=False)
            else:
                self.model.save_pretrained(str(folder))

    def save_merged(self, folder: Path) -> None:
        """Write all weights as if there were no adapter. Raises OSError, TrainerError."""
        if isinstance(self.model, PeftModel):
            write_merged(self.model, folder)
        else:
            self.save_weights(folder)

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Take the weights that `save` wrote, in place."""
        if isinstance(self.model, PeftModel):
            set_peft_model_state_dict(self.model, load_file(folder / "adapter_model.safetensors"))
            return
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=self.head.dtype)
        for mine, theirs in zip(self.base.parameters(), loaded.parameters(), strict=True):
            mine.copy_(theirs)

    def twin(self) -> Policy:
        """Return the same policy on trainable weights of its own; what is frozen is shared."""
        frozen = {id(p): p for p in self.model.parameters() if not p.requires_grad}
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model, frozen)  # type: ignore[arg-type]
        adapted: Any = other.model
        other.base = adapted.base_model.model if self.has_adapter else adapted
        other._decoder = other.base.get_decoder()
        return other

    @torch.no_grad()
    def copy_weights(self, source: Policy) -> None:
        """Take the trainable weights of a twin."""
        for mine, theirs in zip(self.trainable, source.trainable, strict=True):
            mine.copy_(theirs)

    def keep_reference(self) -> None:
        """Remember the present trainable weights as the reference of the KL.

        For a fresh adapter, whose product is zero, this is the policy with its adapter off.
        """
        self._reference = [p.detach().clone() for p in self.trainable]

    @contextlib.contextmanager
    def as_reference(self) -> Iterator[None]:
        """Use the reference's weights within."""
        assert self._reference is not None, "keep_reference was not called"
        present = [p.data for p in self.trainable]
        for p, data in zip(self.trainable, self._reference, strict=True):
            p.data = data
        try:
            yield
        finally:
            for p, data in zip(self.trainable, present, strict=True):
                p.data = data


def with_adapter(base: PreTrainedModel, cfg: AdapterConfig) -> PeftModel:
    """Add LoRA on all linear layers but the head, in float32 whatever the base is in."""
    lora = LoraConfig(
        r=cfg.rank,
        lora_alpha=cfg.alpha,  # type: ignore[arg-type]
        target_modules="all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, lora)  # type: ignore[arg-type, return-value]


class Reference:
    """A policy with its adapter off, as far as an engine needs it."""

    def __init__(self, policy: Policy) -> None:
        assert isinstance(policy.model, PeftModel)
        self._policy = policy
        self._adapted: PeftModel = policy.model
        self.tokenizer = policy.tokenizer
        self.base = policy.base
        self.head = policy.head
        self.device = policy.device

    def hidden(self, *args: Any) -> Tensor:
        with self._adapted.disable_adapter():
            return self._policy.hidden(*args)

    def fingerprint(self) -> str:
        """Return a hash that tells these weights from those of another base."""
        weights = self.head.detach().flatten()
        some = weights[:: max(1, len(weights) // FINGERPRINT_SIZE)].float().cpu().numpy()
        return hashlib.sha256(some.tobytes()).hexdigest()


def load_policy(cfg: ModelConfig, texts: Iterable[str], seed: int) -> Policy:
    """Return the base that the config names, before any adapter.

    `texts` train the tokenizer of `tiny`. Raises UsageError where the folder or hub id cannot be
    loaded, PreflightError where there is no such device.
    """
    device = _device(cfg)
    dtype = getattr(torch, dtype_of(cfg, on_gpu=device == "cuda"))
    if cfg.base == "tiny":
        model, tokenizer = make_tiny(cfg.tiny, texts, seed)
    elif cfg.quantize:
        settings = _quantization(cfg.quantize, device, dtype)
        model, tokenizer = _from_pretrained(cfg.base, dtype=dtype, **settings)
        return Policy(model, tokenizer)  # a quantized model is made where it stays
    else:
        model, tokenizer = _from_pretrained(cfg.base, dtype="auto")
    return Policy(model.to(device=device, dtype=dtype), tokenizer)  # type: ignore[arg-type]


def _quantization(bits: str, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """How transformers loads the base: NF4 (2305.14314) or LLM.int8 (2208.07339); the head stays.

    Raises PreflightError without a GPU or the package.
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
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        if not tokenizer.chat_template:
            raise UsageError(
                f"model.base: {base!r} has no chat template; use an instruct model, or add "
                "chat_template.jinja to its folder"
            )
        model = AutoModelForCausalLM.from_pretrained(base, **settings)
    except (OSError, ValueError, KeyError) as e:
        first = str(e).strip().splitlines()[0]
        raise UsageError(
            f"model.base: cannot load {base!r} (neither a folder with a model nor a hub id that "
            f"can be reached): {first}"
        ) from e
    return model, tokenizer


def _device(cfg: ModelConfig) -> str:
    if cfg.device == "cuda" and not torch.cuda.is_available():
        raise PreflightError(
            "model.device is cuda, but torch sees no CUDA device; use model.device=cpu or auto"
        )
    if cfg.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return cfg.device


def _check_attention(model: PreTrainedModel) -> None:
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UsageError(
            f"{type(model).__name__} uses {', '.join(sorted(kinds))}; this engine and trainer "
            "need full attention in every layer (Qwen2.5, Qwen3, Llama and their like)"
        )


@torch.no_grad()
def _check_head(policy: Policy) -> None:
    """Raise where logits are not hidden states times the head, or a layer ignores the layout."""
    ids = torch.arange(8, device=policy.device)[None] % policy.head.shape[0]
    logits = policy.base(input_ids=ids, use_cache=False).logits.float()
    mine = (policy.hidden(ids, torch.arange(8, device=policy.device)[None]) @ policy.head.T).float()
    if not torch.allclose(logits, mine, rtol=1e-2, atol=1e-2 * float(logits.abs().max())):
        raise UsageError(
            f"{type(policy.base).__name__} computes its logits in a way that this program does "
            "not know (soft-capping, scaling or a bias); use another model family"
        )


@torch.no_grad()
def _same_hidden(policy: Policy) -> bool:
    """Return whether our forward of the family computes what transformers' does."""
    ids = torch.arange(8, device=policy.device)[None] % policy.head.shape[0]
    positions = torch.arange(8, device=policy.device)[None]
    theirs = policy.hidden(ids, positions).float()
    mine = hidden_states(policy._decoder, ids, positions, Causal(), None).float()
    bound = 1e-4 if policy.head.dtype == torch.float32 else 2e-2
    return torch.allclose(mine, theirs, rtol=bound, atol=bound * float(theirs.abs().max()))


@contextlib.contextmanager
def _transformers_attention(model: PreTrainedModel) -> Iterator[None]:
    """Keep our attention function's name out of configs that are saved within."""
    model.set_attn_implementation("sdpa")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT looks for the base on the hub to warn of it
            yield
    finally:
        model.set_attn_implementation(ATTENTION)
