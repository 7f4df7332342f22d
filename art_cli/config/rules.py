"""Rules against settings that are valid alone but ineffective or impossible together."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

from art_cli.config.explain import Mistake
from art_cli.config.interpolate import Resolved
from art_cli.config.marks import NotWith, OnlyWith
from art_cli.config.problem import KeyPath
from art_cli.config.rule import Rule
from art_cli.config.schema import Experiment
from art_cli.config.sections.agent import AGENT_RULES
from art_cli.config.sections.backend import BACKEND_RULES
from art_cli.config.sections.engine import ENGINE_RULES
from art_cli.config.sections.env import ENV_RULES
from art_cli.config.sections.judge import JUDGE_RULES
from art_cli.config.sections.model import MODEL_RULES
from art_cli.config.sections.reward import REWARD_RULES
from art_cli.config.sections.sft import SFT_RULES
from art_cli.config.sections.train import TRAIN_RULES


def _marked(cls: type, section: str = "") -> Iterator[Rule]:
    """Yield a rule for each mark on a field of the schema."""
    hints = get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        path, hint = section + each.name, hints[each.name]
        made = each.default_factory is not MISSING
        default = each.default_factory() if made else each.default  # type: ignore[misc]
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OnlyWith | NotWith):
                yield Rule(path, (mark.key,), partial(_is_unused, default, mark), mark.message)
        for part in (hint, *get_args(hint)):
            if isinstance(part, type) and is_dataclass(part):
                yield from _marked(part, f"{path}.")


def _is_unused(default: Any, mark: OnlyWith | NotWith, value: Any, other: Any) -> bool:
    return value != default and not mark.allows(other)


RULES = (
    *_marked(Experiment),
    *AGENT_RULES,
    *BACKEND_RULES,
    *ENGINE_RULES,
    *ENV_RULES,
    *JUDGE_RULES,
    *MODEL_RULES,
    *REWARD_RULES,
    *SFT_RULES,
    *TRAIN_RULES,
)


def broken_rules(resolved: Resolved, wrong: Set[KeyPath]) -> Iterator[Mistake]:
    """Yield mistakes from all rules, except those that need an absent or already `wrong` value."""
    written = resolved.as_written(resolved.data)
    for rule in RULES:
        paths = [tuple(path.split(".")) for path in (rule.path, *rule.others)]
        if any(path[: len(bad)] == bad for path in paths for bad in wrong):
            continue
        try:
            values = [_at(resolved.data, path) for path in paths]
        except (KeyError, TypeError):  # the section is absent or null
            continue
        if rule.broken(*values):
            message = rule.message.format(*(_at(written, path) for path in paths))
            yield Mistake(paths[0], "key", message, tuple(paths[1:]))


def _at(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = data[key]
    return data
