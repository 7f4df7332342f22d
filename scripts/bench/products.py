"""Matrix products of a model of 0.5B on this CPU: by oneDNN against torch's own.

    decode R   a token of each of R rows that the embedded engine answers, through 6 of 24 layers
    head R     logits of R rows over 151,936 words
    update     1,500 tokens through the layers, forward and backward: all weights, and an adapter

The two sides alternate; each number is the least of a few. Where the program would not use oneDNN
(see art_cli/models/forward/products.py) it says so, and measures all the same.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from art_cli.config.sections.model import AdapterConfig
from art_cli.models.adapter import with_adapter
from art_cli.models.forward import products
from art_cli.models.forward.attention import Causal, Layout
from art_cli.models.forward.decoder import decoder_of, hidden_states
from art_cli.models.forward.kv_cache import KVCache

ROWS = (1, 2, 4, 8, 16, 64)
PROMPT, TOKENS, REPEATS = 100, 1500, 4


def main() -> None:
    """Measure all."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    worth = products.is_worth_it()
    print(f"{torch.cpu.get_capabilities().get('cpu_name')}: {'used' if worth else 'not used'} here")
    print(f"{'':12} {'torch ms':>9} {'oneDNN ms':>9} {'ratio':>6}   (CPU ms)")
    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=6,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model: Any = Qwen2ForCausalLM(config).eval()
    use(onednn=True)
    products.use_quickest(model)
    reader = Reader(model)
    with torch.inference_mode():
        for rows in ROWS:
            compare(f"decode {rows}", decoding(reader, rows))
        for rows in ROWS:
            states = torch.randn(rows, 896)
            compare(f"head {rows}", partial(products.product, states, model.lm_head.weight))
    compare("update", updating(reader))
    with_adapter(model, AdapterConfig())
    compare("with adapter", updating(reader))


def use(*, onednn: bool) -> None:
    """Say which side is next."""
    products.is_worth_it = lambda: onednn  # type: ignore[assignment]


def compare(name: str, work: Callable[[], object]) -> None:
    """Print the CPU time of both sides."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(REPEATS):
        for onednn, mine in seconds.items():
            use(onednn=onednn)
            started = time.process_time()
            work()
            mine.append(time.process_time() - started)
    torchs, ours = (min(mine) * 1000 for mine in seconds.values())
    print(f"{name:12} {torchs:9.1f} {ours:9.1f} {torchs / ours:5.2f}x", flush=True)


class Reader:
    """A model as a cache reads it."""

    device = torch.device("cpu")

    def __init__(self, model: Any) -> None:
        self.base = model

    def hidden(self, ids: Any, positions: Any, layout: Layout | None = None) -> torch.Tensor:
        """Return the last hidden states."""
        return hidden_states(decoder_of(self.base), ids, positions, layout or Causal(), None)

    def decode(self, ids: Any, positions: Any, past: Any = None, layout: Any = None) -> Any:
        """Is not asked for: the layers are read by our own forward."""
        raise NotImplementedError


def decoding(reader: Reader, rows: int) -> Callable[[], object]:
    """One more token of each row, behind prompts that are read."""
    cache = KVCache(reader, rows, PROMPT + 4 * REPEATS)
    everyone = list(range(rows))
    cache.read(everyone, [[1] * PROMPT] * rows, [0] * rows, None)
    return lambda: cache.read(everyone, [[2]] * rows, [PROMPT] * rows, None)


def updating(reader: Reader) -> Callable[[], object]:
    """A forward and backward, as an update makes them of one sequence."""
    ids = torch.randint(0, 1000, (1, TOKENS))
    positions = torch.arange(TOKENS)[None]
    slope = torch.randn(1, TOKENS, 896)
    layers: nn.Module = decoder_of(reader.base).layers

    def work() -> None:
        layers.zero_grad()
        (reader.hidden(ids, positions) * slope).sum().backward()

    return work


if __name__ == "__main__":
    main()
