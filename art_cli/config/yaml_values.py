"""A YAML 1.2 reader for large files from other sources. It returns plain values.

Configs are read by `yaml.py`, which records the place of each value and is slower.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode

from art_cli.config.yaml import CORE_SCALARS, TAG, CoreResolver

MOST = 10_000_000  # values; a few lines of nested aliases can stand for billions
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BASES = {"0o": 8, "0x": 16}


def read_yaml(text: str) -> Any:
    """Parse YAML 1.2 with its core schema, in which dates and `no` are strings.

    Keys are strings, as in JSON. Raises ValueError, with the line number, for invalid YAML and for
    a duplicate key.
    """
    try:
        found = yaml.load(text, _Values)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{line}{e.problem or e.context or 'cannot be parsed'}") from None
    except yaml.YAMLError as e:
        raise ValueError(" ".join(str(e).split())) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_size(found)
    return found


class _Values(_Base):
    """PyYAML's loader, implemented in C if available, with YAML 1.2's scalars."""

    yaml_implicit_resolvers = CoreResolver.yaml_implicit_resolvers

    def construct_mapping(self, node: Node, deep: bool = False) -> dict[Hashable, Any]:
        if isinstance(node, MappingNode):
            self._check_keys(node)
            self.flatten_mapping(node)
            for key, _ in node.value:
                key.tag = f"{TAG}str"
        return super().construct_mapping(node, deep)

    def _check_keys(self, node: MappingNode) -> None:
        """Refuse keys that are not strings, and duplicate keys, one of which would be lost."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.tag != f"{TAG}merge" and key.value in seen:
                problem = f"the key {key.value!r:.60} is given twice; keep one of them"
                raise ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)

    def plain(self, node: ScalarNode) -> Any:
        """Convert a scalar by its tag."""
        kind, text = node.tag.removeprefix(TAG), node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                return int(text, _BASES.get(text[:2], 10))
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        except (ValueError, KeyError):
            problem = f"{text!r:.60} does not fit its tag {node.tag}"
            raise ConstructorError(None, None, problem, node.start_mark) from None


for _kind, _, _ in CORE_SCALARS:
    if _kind != "merge":
        _Values.add_constructor(f"{TAG}{_kind}", _Values.plain)
for _kind in ("timestamp", "binary", "set", "omap", "pairs"):  # of YAML 1.1, if a file uses them
    _Values.add_constructor(f"{TAG}{_kind}", SafeConstructor.construct_undefined)


def _check_size(found: Any) -> None:
    """Raise ValueError if aliases expand to too many values or contain themselves."""
    left, waiting = MOST, [found]
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(inner, str) or not hasattr(inner, "__iter__"):
            continue
        waiting.extend(inner)
        left -= len(inner)
        if left < 0:
            raise ValueError(f"it has more than {MOST} values, each counted as often as repeated")
