"""A cache limited in bytes, because outside input determines the size of its entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Caches the most recently used results of `make`. Thread-safe."""

    def __init__(self, make: Callable[[K], V], size: Callable[[K, V], int], most: int) -> None:
        """Keep at most `most` bytes, where `size` returns the bytes of an entry."""
        self._make = make
        self._size = size
        self._most = most
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_bytes = 0

    def __call__(self, key: K) -> V:
        """Return `make(key)`, from the cache if possible."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        value = self._make(key)
        with self._lock:
            if key not in self._kept:  # another thread may have been faster
                self._kept[key] = value, self._size(key, value)
                self.num_bytes += self._kept[key][1]
            value = self._kept[key][0]
            while self.num_bytes > self._most:
                self.num_bytes -= self._kept.popitem(last=False)[1][1]
        return value
