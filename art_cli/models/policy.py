"""The model that is trained: a base with an optional adapter, and its tokenizer."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    Cache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.config.auto import recomputes
from art_cli.config.sections.model import AdapterConfig
from art_cli.models.adapter import with_adapter
from art_cli.models.forward.attention import NAME as ATTENTION
from art_cli.models.forward.attention import Causal, Layout
from art_cli.models.forward.decoder import decode, decoder_of, hidden_states
from art_cli.models.forward.head import Head, head_of
from art_cli.models.forward.native_cache import by_node
from art_cli.models.forward.probe import find_ways
from art_cli.models.forward.token_tree import TreeLayout
from art_cli.models.forward.ways import Ways
from art_cli.models.merge import write_merged
from art_cli.models.saved_weights import damage_told

FINGERPRINT_SIZE = 4096  # number of sampled weights


class Policy:
    """A causal language model with everything that training needs from it.

    Raises UsageError for a model that no supported forward pass computes correctly.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.base = model
        self.model: PreTrainedModel | PeftModel = model
        self._reference: list[Tensor] | None = None
        self._decoder: Any = decoder_of(model)
        self.head: Head = head_of(model)  # computes logits from hidden states
        # A turn may be constrained by a grammar over the model's tokens.
        self.grammars = Grammars(lambda: Vocabulary.of(tokenizer, len(self.head.weight)))
        self.recomputes = False  # layers in the backward pass: train.gradient_checkpointing
        self.base.eval()  # no dropout: sampling and training need the same distribution
        self.ways = Ways()
        self.ways = find_ways(self)
        self.use_attention(self.ways.attention)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the head's weights."""
        return self.head.weight.dtype

    @property
    def trainable(self) -> list[nn.Parameter]:
        """The parameters that the optimizer changes, in a fixed order."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def has_adapter(self) -> bool:
        """True if an adapter is trained rather than all weights."""
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
        """True if the weights of step 0 are stored."""
        return self._reference is not None

    @property
    def eos_token_ids(self) -> list[int]:
        """Token ids that end a text according to the model's generation config."""
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

        With `wanted` [S] and B = 1, return only the states at these indices: [S, D].
        """
        layout = layout or Causal()
        recompute = self.recomputes and torch.is_grad_enabled()
        if self.ways.quick:
            return hidden_states(self._decoder, ids, positions, layout, wanted, recompute)
        if isinstance(layout, TreeLayout) and self.ways.update != "tree":
            ours = self.ways.attention == ATTENTION
            hidden = by_node(self, ids, positions, layout.spans, ours, recompute)
        else:
            hidden = self.decode(ids, positions, layout=layout, recompute=recompute)
        return hidden if wanted is None else hidden[0, wanted]

    def decode(
        self,
        ids: Tensor,
        positions: Tensor,
        past: Cache | None = None,
        layout: Layout | None = None,
        recompute: bool = False,
    ) -> Tensor:
        """Return the last hidden states [B, T, D], computed by transformers' own forward.

        It reads and extends its cache `past`, if given.
        """
        ours = self.ways.attention == ATTENTION
        layout = (layout or Causal()) if ours else None
        return decode(self._decoder, ids, positions, layout, past, recompute)

    def use_attention(self, name: str) -> None:
        """Make the model's layers use this attention implementation."""
        self.base.set_attn_implementation(name)

    def to(self, device: str) -> None:
        """Move all weights to a device."""
        self.model.to(device)  # type: ignore[arg-type]
        if self._reference:
            self._reference = [p.to(device) for p in self._reference]

    def recompute_layers(self, setting: Literal["auto", "on", "off"]) -> None:
        """Store only each layer's input for the backward pass, if `setting` says so."""
        size = sum(p.numel() for p in self.base.parameters())
        self.recomputes = recomputes(setting, size, on_gpu=self.device.type == "cuda")

    def add_adapter(self, cfg: AdapterConfig, seed: int) -> None:
        """Add a new adapter to the base, in float32. It has no effect until it is trained."""
        torch.manual_seed(seed)
        self.model = with_adapter(self.base, cfg)
        self.base.eval()

    def save(self, folder: Path) -> None:
        """Write the weights (`save_weights`) and the tokenizer. Raises OSError."""
        self.save_weights(folder)
        self.tokenizer.save_pretrained(str(folder))

    def save_weights(self, folder: Path) -> None:
        """Write the adapter, or all weights, in PEFT's or transformers' format. Raises OSError."""
        with _transformers_attention(self.base):
            if isinstance(self.model, PeftModel):
                # "auto" would query the hub for a change of the base's vocabulary.
                self.model.save_pretrained(str(folder), save_embedding_layers=False)
            else:
                self.model.save_pretrained(str(folder))

    def save_merged(self, folder: Path) -> None:
        """Write all weights with the adapter merged into them. Raises OSError, TrainerError."""
        if isinstance(self.model, PeftModel):
            write_merged(self.model, folder)
        else:
            self.save_weights(folder)

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Load the weights that `save` wrote, in place. Raises CheckpointError."""
        with damage_told(folder):
            if isinstance(self.model, PeftModel):
                weights = load_file(folder / "adapter_model.safetensors")
                own = get_peft_model_state_dict(self.model, save_embedding_layers=False)
                _check_all(own.keys() - weights.keys())
                set_peft_model_state_dict(self.model, weights)
                return
            base: Any = type(self.base)
            loaded, found = base.from_pretrained(folder, dtype=self.dtype, output_loading_info=True)
            _check_all(found["missing_keys"])
            for mine, theirs in zip(self.base.parameters(), loaded.parameters(), strict=True):
                mine.copy_(theirs)

    def twin(self) -> Policy:
        """Return a copy of the policy with its own trainable weights and the same frozen ones."""
        frozen = {id(p): p for p in self.model.parameters() if not p.requires_grad}
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model, frozen)  # type: ignore[arg-type]
        adapted: Any = other.model
        other.base = adapted.base_model.model if self.has_adapter else adapted
        other._decoder, other.head = decoder_of(other.base), head_of(other.base)
        return other

    @torch.no_grad()
    def copy_weights(self, source: Policy) -> None:
        """Copy the trainable weights of a twin."""
        for mine, theirs in zip(self.trainable, source.trainable, strict=True):
            mine.copy_(theirs)

    def keep_reference(self) -> None:
        """Store a copy of the present trainable weights as the reference of the KL.

        For a new adapter, whose product is zero, this is the policy without adapter.
        """
        self._reference = [p.detach().clone() for p in self.trainable]

    @contextlib.contextmanager
    def as_reference(self) -> Iterator[None]:
        """Use the reference's weights inside this context."""
        assert self._reference is not None, "keep_reference was not called"
        present = [p.data for p in self.trainable]
        for p, data in zip(self.trainable, self._reference, strict=True):
            p.data = data
        try:
            yield
        finally:
            for p, data in zip(self.trainable, present, strict=True):
                p.data = data


def _check_all(missing: Iterable[str]) -> None:
    """Raise ValueError if a file lacks weights; libraries would initialize them randomly."""
    if names := sorted(missing):
        raise ValueError(f"it has no weights for {', '.join(names[:3])}")


class Reference:
    """A policy with its adapter off, with the interface that an engine needs."""

    def __init__(self, policy: Policy) -> None:
        assert isinstance(policy.model, PeftModel)
        self._policy = policy
        self._adapted: PeftModel = policy.model
        self.tokenizer = policy.tokenizer
        self.grammars = policy.grammars
        self.base = policy.base
        self.head = policy.head
        self.device = policy.device
        self.dtype = policy.dtype
        self.ways = policy.ways

    def hidden(self, ids: Tensor, positions: Tensor, layout: Layout | None = None) -> Tensor:
        with self._adapted.disable_adapter():
            return self._policy.hidden(ids, positions, layout)

    def decode(
        self,
        ids: Tensor,
        positions: Tensor,
        past: Cache | None = None,
        layout: Layout | None = None,
    ) -> Tensor:
        with self._adapted.disable_adapter():
            return self._policy.decode(ids, positions, past, layout)

    def fingerprint(self) -> str:
        """Return a hash that distinguishes these weights from those of another base."""
        weights = self.head.weight.detach().flatten()
        some = weights[:: max(1, len(weights) // FINGERPRINT_SIZE)].float().cpu().numpy()
        return hashlib.sha256(some.tobytes()).hexdigest()


@contextlib.contextmanager
def _transformers_attention(model: PreTrainedModel) -> Iterator[None]:
    """Keep our attention function's name out of configs that are saved inside this context."""
    before = str(model.config._attn_implementation)
    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT may fail to find the base on the hub and warns
            yield
    finally:
        model.set_attn_implementation(before)
