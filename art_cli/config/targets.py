"""Targets of `art deploy` and their settings: `deploy.args` of a config, or key=value words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from art_cli.config.explain import read_into
from art_cli.config.plugins import FORM, Plugin, registered
from art_cli.config.sections.deploy import TARGETS
from art_cli.config.yaml_values import read_yaml
from art_cli.errors import UsageError, did_you_mean


def read_target(key: str, name: str) -> str:
    """Return a target as `deploy.use` has it. Raise UsageError, which begins with the key."""
    try:
        return name if name in TARGETS else Plugin("targets").read(name)
    except PydanticCustomError:
        known = [*TARGETS, *registered("targets")]
        raise UsageError(
            f"{key}{name}: there is no such target.{did_you_mean(name, known)} "
            f"(one of {', '.join(known)}, or {FORM})"
        ) from None


def read_words(target: str, args: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return `args` of a config, with key=value `words` over them. Raises UsageError."""
    data = dict(args)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word}: expected key=value, a setting of the target {target}")
        try:
            data[key] = read_yaml(value)
        except ValueError as e:
            raise UsageError(f"{word}: not valid YAML: {e}") from None
    return data


def read_settings(target: str, args: dict[str, Any], words: Sequence[str]) -> Any:
    """Return the settings of a built-in target. Raises UsageError with every mistake."""
    return read_into(TARGETS[target], read_words(target, args, words), target)
