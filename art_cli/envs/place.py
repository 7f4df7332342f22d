"""The file and line of an env's method, for error messages."""

from __future__ import annotations

import inspect


def place_of(env_class: type, method: str) -> str:
    """Return the prefix `file:line: ` for a method; "" if it is not written in Python."""
    if remote := getattr(env_class, "art_remote", None):
        return f"{remote.places.get(method, remote.places[''])}: "
    found = getattr(env_class, method, None)
    code = getattr(inspect.unwrap(found), "__code__", None) if found else None
    return f"{code.co_filename}:{code.co_firstlineno}: " if code else ""
