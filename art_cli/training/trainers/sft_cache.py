"""Cache of SFT results on disk, under a hash of all their inputs.

A result depends on the initial weights, the tokens of the demonstrations in order, the settings,
and the code and hardware that compute it. The env, its code and settings, the tokenizer and the
chat template act only through those tokens, so a change to any of them changes the key.

Each result is one file, written atomically, with its checksum in front. Any number of runs may
share the folder, and any of them may be killed. A damaged file is treated as missing.
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

MOST = 4 << 30  # bytes of all files; the least recently used are removed first
ABANDONED = 3600.0  # seconds after which an unfinished file counts as abandoned
DIGEST_SIZE = hashlib.sha256().digest_size
COMPUTING = ("chat", "models", "training")  # packages whose code affects the result


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """State of an SFT after some or all of its steps."""

    step: int
    weights: list[Tensor]  # the trainable ones
    optimizers: list[dict[str, Any]]  # empty after the last step
    tokens: int  # microbatch size, lowered if memory ran out


class CachedSft:
    """The cache file of one SFT."""

    def __init__(self, key: str) -> None:
        self.file = cache_folder("sft") / f"{key}.pt"

    def load(self) -> Warmed | None:
        """Return the saved state, or None if there is no valid file."""
        try:
            content = self.file.read_bytes()
            digest, body = content[:DIGEST_SIZE], memoryview(content)[DIGEST_SIZE:]
            if hashlib.sha256(body).digest() != digest:
                return None
            found = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
            os.utime(self.file)  # marks it as recently used
        except OSError:
            return None
        return Warmed(**found)

    def save(self, warmed: Warmed) -> None:
        """Save the state, replacing an earlier one. Errors such as a full disk are ignored."""
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
    """Return the hash of everything that the SFT of a policy on these batches depends on."""
    settings = asdict(cfg)
    # These settings already determine the weights and the batches, which are hashed below.
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
    """Yield all weights and buffers by name, with trained or frozen in the name."""
    for name, p in model.named_parameters():
        yield f"{name} {p.requires_grad}", p
    yield from model.named_buffers()


def _computer(policy: Policy) -> list[Any]:
    """Return what affects rounding: the code, package versions, device and number of threads."""
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
    """Remove the oldest files until the rest fit into `room` bytes, and those of killed runs."""
    for left in folder.glob(".*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
    found = []
    for file in folder.glob("*.pt"):
        with suppress(OSError):  # another run may be removing it
            found.append((file.stat().st_mtime, file.stat().st_size, file))
    for _, size, file in sorted(found, reverse=True):
        room -= size
        if room < 0:
            file.unlink(missing_ok=True)
