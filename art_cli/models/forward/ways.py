"""The ways to read a model, fastest first; `probe.py` finds out which are correct.

Most families follow transformers' attention interface and use our attention. An update then reads
all tokens at once, and the engine all rows in one batch. Recurrent layers would mix siblings, so an
update reads them node by node. A model that bypasses the interface is read by its own code only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from art_cli.models.forward.attention import NAME
from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.forward.memory import Memory, Reader
from art_cli.models.forward.native_cache import NativeCaches
from art_cli.models.forward.states import StateCache, has_states

# tree: all packed tokens in one forward. nodes: one forward a node, from its parent's cache. rows:
# one forward a sequence, nothing is shared.
Update = Literal["tree", "nodes", "rows"]
# batch: all rows in one forward. row: each row from its own cache. anew: each row from its first
# token, for every token.
Engine = Literal["batch", "row", "anew"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The ways in which the update and the embedded engine read a model."""

    attention: str = NAME  # or the name of a transformers implementation
    update: Update = "tree"
    engine: Engine = "batch"
    quick: bool = False  # use our own forward of the Llama family
    why: str = ""  # failed faster ways, with their differences

    @property
    def shares(self) -> bool:
        """True if an update reads shared prefixes once."""
        return self.update != "rows"

    def in_words(self, embedded: bool = True) -> str:
        """Return a description of the slower ways for the user, or "" if all are the fastest.

        `embedded` includes the embedded engine, if it is in use.
        """
        update = {
            "tree": "",
            "nodes": "updates read the tree of shared prefixes node by node",
            "rows": "updates read one sequence after another, and share no prefixes",
        }
        engine = {
            "batch": "",
            "row": "the embedded engine reads one episode after another",
            "anew": "the embedded engine reads a whole sequence anew for each token",
        }
        words = (update[self.update], engine[self.engine] if embedded else "")
        return "; ".join(filter(None, words))


def make_memory(reader: Reader, ways: Ways, rows: int, length: int) -> Memory:
    """Return an engine's cache for this many rows of `length` tokens, read in these ways."""
    if ways.engine != "batch":
        ours, keeps = ways.attention == NAME, ways.engine == "row"
        return NativeCaches(reader, rows, whole=ours, keeps=keeps)
    states: Any = has_states(reader.base.config)
    if states:
        return StateCache(reader, rows, length)
    return KVCache(reader, rows, length, ways.quick)
