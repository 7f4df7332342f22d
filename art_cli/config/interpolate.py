"""Interpolations such as `${oc.env:NAME}` and `${train.steps}`, without writing secrets to files.

OmegaConf resolves them. If a value reads an environment variable, even through other keys, its
original text is remembered, and files and messages show that text. Other texts with the variable's
value, such as an env's error, are masked when they are printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any

from omegaconf import Container, OmegaConf
from omegaconf.errors import (
    GrammarParseError,
    InterpolationKeyError,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)
from omegaconf.resolvers import oc

from art_cli.config.explain import Mistake
from art_cli.config.problem import KeyPath
from art_cli.config.yaml import leaves
from art_cli.keys import register_environment
from art_cli.terminal.text import hide

_NAMES: set[KeyPath] = {  # names of folders and accounts, which commands for the user contain
    *(("project",), ("name",), ("backend", "cluster"), ("deploy", "name")),
    ("track", "wandb", "entity"),
}
# Variables whose values are not secret.
_PUBLIC = {"HOME", "USER", "LOGNAME", "PWD", "SHELL", "LANG", "PATH", "TMPDIR", "HOSTNAME"}
_ESCAPE_HINT = r"for a literal ${ in a text write \${"


@dataclass(slots=True)
class Resolved:
    """A config with its interpolations resolved."""

    data: Any
    secrets: dict[KeyPath, str] = field(default_factory=dict)  # the text with ${oc.env:...}
    mistakes: list[Mistake] = field(default_factory=list)  # their value in `data` is None

    def as_written(self, value: Any, path: KeyPath = ()) -> Any:
        """Return a part of the data for a file, with `${oc.env:...}` instead of secrets."""
        if path in self.secrets:
            return self.secrets[path]
        if isinstance(value, dict):
            return {key: self.as_written(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.as_written(item, (*path, i)) for i, item in enumerate(value)]
        return escape(value) if isinstance(value, str) else value


def escape(text: str) -> str:
    """Escape a text so that resolving interpolations gives it back."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def resolve(data: dict[str, Any]) -> Resolved:
    """Resolve all interpolations of a config. Changes `data` in place."""
    resolved = Resolved(data)
    texts = {path: value for path, value in leaves(data) if isinstance(value, str)}
    interpolated = {path: text for path, text in texts.items() if "${" in text}
    said = {*texts.values()}  # a value that the file also contains is not secret
    taken, public = set[str](), set(_PUBLIC)
    for path, text in interpolated.items():
        try:
            OmegaConf.create([text])
        except GrammarParseError:
            # OmegaConf would refuse the whole config because of this text.
            _put(data, path, None)
            message = f"cannot make sense of the ${{ in {text!r}; {_ESCAPE_HINT}"
            resolved.mistakes.append(Mistake(path, "value", message))
    config = OmegaConf.create(data)
    failed = {mistake.path for mistake in resolved.mistakes}
    for path, text in interpolated.items():
        if path in failed:
            continue
        with _watched_environment() as reads:
            try:
                _put(data, path, _plain(reduce(getitem, path, config)))
            except OmegaConfBaseException as error:
                _put(data, path, None)
                resolved.mistakes.append(Mistake(path, "value", _explain(error, text, reads)))
            if reads.names:
                resolved.secrets[path] = text
            (public if path in _NAMES else taken).update(reads.names)
    register_environment({t for path, t in texts.items() if _names_variable(path)})
    for name in taken - public:
        if (value := os.environ.get(name, "")) not in said:
            hide(value, f"${{oc.env:{name}}}")
    return resolved


def _names_variable(path: KeyPath) -> bool:
    """Return whether the value at the path names a variable with a key."""
    return path[-1] in ("api_key_env", "key_env") or path[:2] == ("backend", "secrets")


@dataclass(slots=True)
class _Reads:
    names: list[str] = field(default_factory=list)
    missing: str | None = None  # a variable that is unset and has no default


@contextmanager
def _watched_environment() -> Iterator[_Reads]:
    """Record the environment variables that are read inside the block.

    Not thread-safe: OmegaConf's resolvers are global.
    """
    reads = _Reads()

    def read(name: str, *default: Any) -> str | None:
        reads.names.append(name)
        if name not in os.environ and not default:
            reads.missing = name
        return oc.env(name, *default)

    OmegaConf.register_resolver("oc.env", read, replace=True)
    try:
        yield reads
    finally:
        OmegaConf.register_resolver("oc.env", oc.env, replace=True)


def _explain(error: OmegaConfBaseException, text: str, reads: _Reads) -> str:
    if name := reads.missing:
        return (
            f"the environment variable {name} is not set; set it, "
            f"or give a default: ${{oc.env:{name},default}}"
        )
    if reads.names:  # OmegaConf's own message may quote the value
        return f"cannot resolve {text!r}: the environment variable does not hold what it should"
    reason = str(error).splitlines()[0]
    unknown = isinstance(error, InterpolationKeyError | UnsupportedInterpolationType)
    return f"cannot resolve {text!r}: {reason}{f'; {_ESCAPE_HINT}' if unknown else ''}"


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if isinstance(value, Container) else value


def _put(data: Any, path: KeyPath, value: Any) -> None:
    reduce(getitem, path[:-1], data)[path[-1]] = value
