"""A policy whose weights are sharded over several ranks by FSDP2.

Every parameter is a DTensor, split along its first axis. FSDP gathers a layer's weights before its
forward and its backward pass, and frees them afterwards. It reduces gradients over the ranks into
each rank's shard. All ranks must therefore make the same calls in the same order.

The forward pass is transformers' own, because it calls each layer as a module, which FSDP hooks.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel

from art_cli.chat.grammar.grammars import Grammars
from art_cli.config.sections.model import AdapterConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.models.adapter import with_adapter
from art_cli.models.classes import class_of
from art_cli.models.forward.attention import NAME as ATTENTION
from art_cli.models.forward.attention import Causal, Layout
from art_cli.models.forward.decoder import decode, decoder_of
from art_cli.models.forward.head import Head, head_of
from art_cli.models.forward.ways import Ways
from art_cli.models.policy import Policy
from art_cli.training.trainers.forward import Forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Everything that a rank needs to build its shard, except the weights."""

    base: PretrainedConfig
    dtype: torch.dtype
    adapter: AdapterConfig | None
    device: str  # cpu or cuda
    recomputes: bool
    num_threads: int
    train: TrainConfig
    sampling: SamplingConfig

    def plain(self) -> dict[str, Any]:
        """Return the blueprint as JSON values, to be read by `of`."""
        return {
            "base": json.loads(self.base.to_json_string(use_diff=False)),
            "dtype": str(self.dtype).removeprefix("torch."),
            "adapter": self.adapter and asdict(self.adapter),
            "device": self.device,
            "recomputes": self.recomputes,
            "num_threads": self.num_threads,
            "train": asdict(self.train),
            "sampling": asdict(self.sampling),
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Blueprint:
        """Return the blueprint that `plain` was made from."""
        base, adapter = plain["base"], plain["adapter"]
        made = {
            "base": CONFIG_MAPPING[base["model_type"]].from_dict(base),
            "dtype": getattr(torch, plain["dtype"]),
            "adapter": adapter and AdapterConfig(**adapter),
            "train": TrainConfig(**plain["train"]),
            "sampling": SamplingConfig(**plain["sampling"]),
        }
        return cls(**plain | made)


class Shard:
    """This rank's part of the policy; implements Trainable."""

    def __init__(self, blueprint: Blueprint, device: torch.device, grammars: Grammars) -> None:
        self.device = device
        self.grammars = grammars
        self.base = _without_weights(blueprint)
        self.model: nn.Module = self.base
        if blueprint.adapter:
            with torch.device("meta"):
                self.model = with_adapter(self.base, blueprint.adapter)
        self.base.eval()
        self._decoder: Any = decoder_of(self.base)
        self._recomputes = blueprint.recomputes
        self.ways = Ways()  # `check_ranks` refuses a policy with other ways
        self._reference: list[Tensor] = []
        self.forward = Forward(self, blueprint.sampling.temperature)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for module in (*self._decoder.layers, self.forward):
            fully_shard(module, mesh=mesh, reshard_after_forward=True)
            assert isinstance(module, FSDPModule)
            # The loss is already divided by the tokens of all ranks; FSDP would average it again.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
        self.forward.to_empty(device=device)

    @property
    def head(self) -> Head:
        """The head (see `Policy`): whole within a forward pass, this rank's shard outside."""
        return head_of(self.base)

    @property
    def dtype(self) -> torch.dtype:
        """See `Policy`."""
        return self.head.weight.dtype

    @property
    def trainable(self) -> list[nn.Parameter]:
        """The trainable parameters, in the order of `Policy.trainable`."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def hidden(
        self,
        ids: Tensor,
        positions: Tensor,
        layout: Layout | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        recompute = self._recomputes and torch.is_grad_enabled()
        hidden = decode(self._decoder, ids, positions, layout or Causal(), recompute=recompute)
        return hidden if wanted is None else hidden[0, wanted]

    @torch.no_grad()
    def take(self, policy: Policy | None, frozen: bool) -> None:
        """Copy the weights of rank 0's policy into the shards; other ranks pass None.

        `frozen` includes the frozen weights of the base. To save memory, the other ranks hold one
        full tensor at a time.
        """
        source = dict(policy.model.named_parameters()) if policy else {}
        for name, p in self.model.named_parameters():
            if frozen or p.requires_grad:
                _local(p).copy_(_local(scatter(source.get(name), p)))
        buffers = dict(policy.model.named_buffers()) if policy else {}
        for name, buffer in self.model.named_buffers():  # not in a state dict: rotary frequencies
            if policy:
                buffer.copy_(buffers[name])
            dist.broadcast(buffer, 0)

    @torch.no_grad()
    def give(self, policy: Policy | None) -> None:
        """Gather the trained weights and write them into rank 0's policy."""
        whole = policy.trainable if policy else [None] * len(self.trainable)
        for p, target in zip(self.trainable, whole, strict=True):
            full = gather(p)
            if target is not None:
                target.copy_(full)

    def keep_reference(self) -> None:
        self._reference = [_local(p).clone() for p in self.trainable]

    @contextlib.contextmanager
    def as_reference(self) -> Iterator[None]:
        """See `Policy`. Weights change in place, because FSDP gathers from memory that it owns."""
        present = [_local(p).clone() for p in self.trainable]
        self._become(self._reference)
        try:
            yield
        finally:
            self._become(present)

    @torch.no_grad()
    def _become(self, weights: list[Tensor]) -> None:
        for p, weight in zip(self.trainable, weights, strict=True):
            _local(p).copy_(weight)


def scatter(full: Tensor | None, like: Tensor) -> Tensor:
    """Shard rank 0's tensor over the ranks like the DTensor `like`; other ranks pass None."""
    assert isinstance(like, DTensor)
    if full is None:
        full = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    full = full.detach().to(dtype=like.dtype, device=like.device)
    return distribute_tensor(full, like.device_mesh, like.placements)


def gather(value: Any) -> Any:
    """Return the full tensor of a DTensor, on every rank. Return any other value unchanged."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _local(value: Tensor) -> Tensor:
    assert isinstance(value, DTensor)
    return value.to_local().detach()


def _without_weights(blueprint: Blueprint) -> PreTrainedModel:
    config = copy.deepcopy(blueprint.base)
    with torch.device("meta"):
        base = class_of(config)._from_config(config, dtype=blueprint.dtype)
    base.set_attn_implementation(ATTENTION)
    return base
