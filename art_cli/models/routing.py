"""Record the routers' choices of experts during forward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils.output_capturing import OutputRecorder

from art_cli.models.forward.decoder import decoder_of

TOP_K = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k")


@dataclass(frozen=True, slots=True)
class Routed:
    """The output of one layer's router for n tokens."""

    logits: Tensor  # [n, experts]
    chosen: Tensor  # [n, k] experts, int64


class Routers:
    """The routers of a model, in layer order. Empty for a dense model."""

    def __init__(self, model: Any) -> None:
        """`model` is a base, or a model with an adapter on a base."""
        decoder = decoder_of(model)
        self._top_k = experts_per_token(model.config)  # for routers that do not choose themselves
        self._routers = list(_routers(decoder))

    def __len__(self) -> int:
        return len(self._routers)

    @contextmanager
    def watched(self) -> Iterator[list[list[Routed]]]:
        """Yield a list per layer, to which its router's outputs inside this context are added."""
        said: list[list[Routed]] = [[] for _ in self._routers]
        hooks = [
            router.register_forward_hook(self._hook(index, mine))
            for (router, index), mine in zip(self._routers, said, strict=True)
        ]
        try:
            yield said
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, index: int, said: list[Routed]) -> Callable[..., None]:
        def note(_: nn.Module, __: Any, output: Any) -> None:
            outputs = output if isinstance(output, tuple) else (output,)
            logits = outputs[index].flatten(0, -2)
            chosen = next((o for o in outputs if _is_choice(o)), None)
            if chosen is None:
                chosen = logits.detach().topk(self._top_k).indices
            said.append(Routed(logits, chosen.flatten(0, -2)))

        return note


def experts_per_token(config: Any) -> int:
    """Return the number of routed experts per token, by any of the families' names for it."""
    text = config.get_text_config()
    value = next((getattr(text, name) for name in TOP_K if getattr(text, name, None)), 1)
    return max(value) if isinstance(value, list) else int(value)


def _is_choice(output: Any) -> bool:
    return isinstance(output, Tensor) and output.dtype in (torch.int32, torch.int64)


def _routers(decoder: nn.Module) -> Iterator[tuple[nn.Module, int]]:
    """Yield each router, and the index of the logits in its output, as known to transformers."""
    known: Any = (getattr(decoder, "_can_record_outputs", None) or {}).get("router_logits", [])
    recorders = [
        r if isinstance(r, OutputRecorder) else OutputRecorder(r)
        for r in (known if isinstance(known, list) else [known])
    ]
    for name, module in decoder.named_modules():
        for recorder in recorders:
            is_named = recorder.layer_name is None or recorder.layer_name in name
            if is_named and isinstance(module, recorder.target_class):
                yield module, recorder.index
