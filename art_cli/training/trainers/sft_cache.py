"""Results of SFT on disk, by the hash of all that they depend on, so that each is made once.

The result is a function of the weights that it begins with, the tokens of the demonstrations in
their order, its settings, and what computes it. An env, its code and settings, the tokenizer and
the chat template have had their say in those tokens: whatever changes one of them is another key.

One file a result, written whole or not at all, with its checksum in front: any number of runs may
share the folder, and any of them may be killed. A file that is damaged is one that is not there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from art_cli.config.sections.sft import SFTConfig
from art_cli.models.policy import Policy
from art_cli.system.files import cache_folder
from art_cli.training.algorithm.packing import TrainSequence

MOST = 4 << 30  # bytes of all files; the ones that were used longest ago go first
ABANDONED = 3600.0  # seconds after which a file that is being written has no writer any more
DIGEST_SIZE = hashlib.sha256().digest_size
COMPUTING = ("chat", "models", "training")  # rooms whose code decides what SFT comes to


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """SFT after some of its steps, or all."""

    step: int
    weights: list[Tensor]  # the trainable ones
    optimizers: list[dict[str, Any]]  # none after the last step
    tokens: int  # of a microbatch, as far as memory allowed


class CachedSft:
    """The files of one supervised stage."""

    def __init__(self, key: str) -> None:
        self.file = cache_folder("sft") / f"{key}.pt"

    def load(self) -> Warmed | None:
        """Return what was kept; None where there is nothing that can be used."""
        try:
            content = self.file.read_bytes()
            digest, body = content[:DIGEST_SIZE], memoryview(content)[DIGEST_SIZE:]
            if hashlib.sha256(body).digest() != digest:
                return None
            found = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
            os.utime(self.file)  # it is used: others are older
        except OSError:
            return None
        return Warmed(**found)

    def save(self, warmed: Warmed) -> None:
        """Keep it in place of what was there. A disk that is full costs the cache, not the run."""
        if _size(warmed) > MOST:
            return
        body = io.BytesIO()
        names = Warmed.__dataclass_fields__
        torch.save({name: getattr(warmed, name) for name in names}, body)
        folder = self.file.parent
        unfinished = folder / f".{secrets.token_hex(8)}.tmp"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            _remove_oldest(folder, MOST - body.getbuffer().nbytes)
            try:
                with open(unfinished, "wb") as file:
                    file.write(hashlib.sha256(body.getbuffer()).digest())
                    file.write(body.getbuffer())
                os.replace(unfinished, self.file)
            finally:
                unfinished.unlink(missing_ok=True)


def key_of_warmup(
    policy: Policy,
    batches: list[list[list[TrainSequence]]],
    cfg: SFTConfig,
    microbatch_tokens: int,
) -> str:
    """Return the hash of all that the SFT of a policy on these batches depends on."""
    settings = asdict(cfg)
    # These have had their say in the weights and the batches.
    for name in ("demonstrations", "num_demonstrations", "epochs", "batch_size", "weights"):
        settings.pop(name)
    total = hashlib.sha256()
    said = [settings, microbatch_tokens, policy.recomputes, _computer(policy)]
    total.update(json.dumps(said, sort_keys=True).encode())
    for name, weights in _all_weights(policy.model):
        total.update(f"\n{name} {weights.dtype} {list(weights.shape)} ".encode())
        flat = weights.detach().contiguous().flatten().view(torch.uint8)
        total.update(flat.cpu().numpy().data)
    total.update(json.dumps([[len(d) for d in batch] for batch in batches]).encode())
    for sequence in (s for batch in batches for d in batch for s in d):
        total.update(array("q", (len(sequence.ids), *sequence.ids, *sequence.mask)).tobytes())
    return total.hexdigest()[:32]


def _all_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the frozen ones too, and whether each is trained in its name."""
    for name, p in model.named_parameters():
        yield f"{name} {p.requires_grad}", p
    yield from model.named_buffers()


def _computer(policy: Policy) -> list[Any]:
    """Return what computes: code, packages, and the device, whose sums differ in their last bit."""
    home = Path(__file__).parents[2]
    code = hashlib.sha256()
    for file in sorted(f for room in COMPUTING for f in (home / room).rglob("*.py")):
        code.update(f"{file.relative_to(home)} ".encode() + file.read_bytes())
    device = policy.device
    is_gpu = device.type == "cuda"
    where = (
        torch.cuda.get_device_name(device) if is_gpu else torch.backends.cpu.get_cpu_capability()
    )
    packages = [f"{name} {version(name)}" for name in ("torch", "transformers", "peft")]
    return [code.hexdigest(), packages, device.type, where, torch.get_num_threads()]


def _size(warmed: Warmed) -> int:
    states = [t for o in warmed.optimizers for s in o["state"].values() for t in s.values()]
    tensors = [*warmed.weights, *(t for t in states if isinstance(t, Tensor))]
    return sum(t.numel() * t.element_size() for t in tensors)


def _remove_oldest(folder: Path, room: int) -> None:
    """Remove files until the others take no more than `room`; and what killed runs left."""
    for left in folder.glob(".*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
    found = []
    for file in folder.glob("*.pt"):
        with suppress(OSError):  # another run removes it at this instant
            found.append((file.stat().st_mtime, file.stat().st_size, file))
    for _, size, file in sorted(found, reverse=True):
        room -= size
        if room < 0:
            file.unlink(missing_ok=True)
