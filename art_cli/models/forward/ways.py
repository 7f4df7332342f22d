"""The ways in which a model can be read, quickest first; which of them is right is found by trial.

Most families follow transformers' attention interface, and are read by our attention: all tokens of
an update at once, and all rows of the engine in one batch. Recurrent layers would mix siblings: an
update then reads node by node. What bypasses the interface is read by the model's own code alone.
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
# one forward a sequence; nothing is shared.
Update = Literal["tree", "nodes", "rows"]
# batch: all rows in one forward. row: each from its own cache. anew: each from its first token.
Engine = Literal["batch", "row", "anew"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The ways in which the update and the embedded engine read a model."""

    attention: str = NAME  # or an implementation of transformers'
    update: Update = "tree"
    engine: Engine = "batch"
    quick: bool = False  # by our own forward of the Llama family
    why: str = ""  # not a quicker one: what was tried, and how it differs

    @property
    def shares(self) -> bool:
        """True if an update reads what siblings share once."""
        return self.update != "rows"

    def in_words(self, embedded: bool = True) -> str:
        """Return what it means for whoever waits for it; nothing where it is the quickest.

        `embedded`: the engine of this program samples, too.
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
    """Return what an engine keeps of so many rows of so many tokens, read in these ways."""
    if ways.engine != "batch":
        ours, keeps = ways.attention == NAME, ways.engine == "row"
        return NativeCaches(reader, rows, whole=ours, keeps=keeps)
    states: Any = has_states(reader.base.config)
    if states:
        return StateCache(reader, rows, length)
    return KVCache(reader, rows, length, ways.quick)
