"""Settings of a target of `art deploy`: `deploy.args` of a config, or key=value arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from art_cli.config.explain import read_into
from art_cli.config.sections.deploy import TARGETS
from art_cli.config.yaml_values import read_yaml
from art_cli.errors import UsageError


def read_settings(target: str, args: dict[str, Any], words: Sequence[str]) -> Any:
    """Return the settings of a target: `args` of a config, overridden by key=value `words`.

    Raises UsageError with every mistake.
    """
    data = dict(args)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word}: expected key=value, a setting of the target {target}")
        try:
            data[key] = read_yaml(value)
        except ValueError as e:
            raise UsageError(f"{word}: not valid YAML: {e}") from None
    return read_into(TARGETS[target], data, target)
