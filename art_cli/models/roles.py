"""Parts of a text decoder by name and role, for any family of transformers.

transformers 5 stores the experts of one layer as fused parameters [experts, out, in] of a module
`experts`, with the router as a separate module beside it. Every other weight matrix belongs to a
linear map.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D  # GPT-2's linear map, its weight transposed

from art_cli.models.forward.decoder import decoder_of

Role = Literal["attention", "mlp", "experts", "router"]

LINEAR = (nn.Linear, Conv1D)
EXPERTS = "experts"  # transformers' name for the module of routed experts
ROUTERS = {"gate", "router", "shared_expert_gate"}
SHARED = re.compile(r"shared_(expert|mlp)")
MIXING = re.compile(r"attn|attention|mamba|mixer|conv|temporal|recurrent|ssm|rwkv|time_mix")
# Modules whose weights a Mamba layer's kernels read without calling the module.
OF_KERNELS = ("out_proj", "dt_proj")
MLP_CLASS = re.compile(r"(MLP|Mlp|MoE|FFN|FeedForward|SparseMoeBlock)$")


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One linear map, or one fused parameter of a layer's experts."""

    name: str  # of the linear module, or of the parameter
    role: Role
    module: nn.Module  # the linear map, or the module that holds the parameter

    @property
    def is_fused(self) -> bool:
        """True if this is a parameter of all experts of a layer."""
        return not isinstance(self.module, LINEAR)

    @property
    def tensor(self) -> nn.Parameter:
        """The weights: [out, in] of a linear map, [experts, ., .] of fused experts."""
        name = self.name.rpartition(".")[2] if self.is_fused else "weight"
        return getattr(self.module, name)

    @property
    def sides(self) -> int:
        """Inputs plus outputs, summed over experts: the size of an adapter of rank 1."""
        shape = self.tensor.shape
        return shape[0] * (shape[1] + shape[2]) if self.is_fused else shape[0] + shape[1]


def parts_of(base: PreTrainedModel) -> list[ModelPart]:
    """Return the parts of the text decoder in the order of the model.

    Modules outside the decoder, such as a vision tower or the head, are not included.
    """
    decoder = decoder_of(base)
    [prefix] = [name for name, module in base.named_modules() if module is decoder]
    head = base.get_output_embeddings()
    found = [p for p in _parts(decoder, prefix) if p.module is not head]
    if any(p.role == EXPERTS for p in found):
        return found
    # A dense family may have a linear map named `gate` that is not a router.
    return [ModelPart(p.name, "mlp", p.module) if p.role == "router" else p for p in found]


def _parts(decoder: nn.Module, prefix: str) -> Iterator[ModelPart]:
    classes = {name: type(module).__name__ for name, module in decoder.named_modules()}
    for name, module in decoder.named_modules():
        full = f"{prefix}.{name}" if prefix else name
        owner, _, last = name.rpartition(".")
        if isinstance(module, LINEAR):
            if last in OF_KERNELS and (owner.endswith("mamba") or "Mamba" in classes[owner]):
                continue
            yield ModelPart(full, _role(name, classes), module)
        elif last == EXPERTS:
            for parameter, value in module.named_parameters(recurse=False):
                if value.ndim == 3:
                    yield ModelPart(f"{full}.{parameter}", EXPERTS, module)


def _role(name: str, classes: dict[str, str]) -> Role:
    words = name.split(".")
    if EXPERTS in words:
        return EXPERTS
    if ROUTERS & set(words):
        return "router"
    for i, word in enumerate(words):
        if SHARED.search(word) or MLP_CLASS.search(classes[".".join(words[: i + 1])]):
            return "mlp"
        if MIXING.search(word):
            return "attention"
    return "mlp"
