"""Messages of plain values between ranks, serialized without pickle.

torch's own `*_object_*` functions unpickle: anyone who reaches their socket can run code in the
trainer. Here `torch.load(weights_only=True)` reads the bytes, which builds only numbers, strings,
tensors and containers of them.
"""

from __future__ import annotations

import io
from dataclasses import asdict
from pickle import UnpicklingError
from typing import Any

import torch
import torch.distributed as dist

from art_cli.training.algorithm.load_balance import Load
from art_cli.training.algorithm.loss import Tokens
from art_cli.training.algorithm.packing import TrainSequence
from art_cli.training.trainers.stats import Stats
from art_cli.types import Constrained

LISTS = {"ids": torch.int64, "mask": torch.int64, "engine_logprobs": torch.float64}


def send(value: Any, to: int) -> None:
    """Send a plain value to the rank `to`, which must call `receive`. Raises RuntimeError."""
    file = io.BytesIO()
    torch.save(value, file)
    data = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
    dist.send(torch.tensor([len(data)]), to)
    dist.send(data, to)


def receive(source: int) -> Any:
    """Receive the value that rank `source` sends. Raises RuntimeError, also for other data."""
    size = torch.empty(1, dtype=torch.int64)
    dist.recv(size, source)
    data = torch.empty(int(size), dtype=torch.uint8)
    dist.recv(data, source)
    try:
        return torch.load(io.BytesIO(data.numpy().data), weights_only=True)
    except UnpicklingError:
        raise RuntimeError(f"rank {source} sent something other than plain data") from None


def share(value: Any) -> Any:
    """Return rank 0's plain value on every rank. The argument of other ranks is ignored."""
    if dist.get_rank() > 0:
        return receive(0)
    for rank in range(1, dist.get_world_size()):
        send(value, rank)
    return value


def plain_sequence(sequence: TrainSequence) -> dict[str, Any]:
    """Return the sequence as plain values for `sequence_of`. Lists become tensors, for speed."""
    lists = {k: torch.tensor(getattr(sequence, k), dtype=dtype) for k, dtype in LISTS.items()}
    others = ("advantages", "weight", "trajectory")
    constrained = [asdict(part) for part in sequence.constrained]
    return lists | {k: getattr(sequence, k) for k in others} | {"constrained": constrained}


def sequence_of(plain: dict[str, Any]) -> TrainSequence:
    """Return the sequence that was given to `plain_sequence`."""
    constrained = [Constrained(**part) for part in plain["constrained"]]
    lists = {k: plain[k].tolist() for k in LISTS}
    read: dict[str, Any] = plain | lists | {"constrained": constrained}
    return TrainSequence(**read)


def plain_stats(stats: Stats) -> dict[str, Any]:
    """Return the stats as plain values for `stats_of`."""
    return asdict(stats.cpu())


def stats_of(plain: dict[str, Any]) -> Stats:
    """Return the stats that were given to `plain_stats`."""
    parts: Any = [(logprobs, Tokens(**tokens)) for logprobs, tokens in plain["parts"]]
    load: Any = plain["load"] and Load(**plain["load"])
    return Stats(**plain | {"parts": parts, "load": load})
