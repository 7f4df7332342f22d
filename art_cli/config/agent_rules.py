"""Rules of the section `agent`."""

from __future__ import annotations

from operator import not_
from typing import Any

from art_cli.config.rule import Rule, clash


def _is_wildcard(address: str) -> bool:
    return address.rpartition(":")[0] in ("0.0.0.0", "[::]", "*")


def _of_base(models: Any) -> bool:
    return isinstance(models, dict) and "base" in models.values()


def _asks_nobody(models: Any) -> bool:
    return isinstance(models, dict) and not any(isinstance(m, dict) for m in models.values())


def _untrained(train: Any, models: Any) -> bool:
    """Return whether what is to be trained is answered by another model."""
    return isinstance(train, dict) and bool(set(train.get("models") or ()) & set(models or ()))


AGENT_RULES = (
    Rule(
        "agent.models",
        ("model.adapter",),
        lambda models, adapter: _of_base(models) and adapter is None,
        "holds base, the weights before training, but model.adapter is null: they are trained "
        "themselves, and kept nowhere; train an adapter, or name a model of an API",
    ),
    Rule(
        "agent.models",
        ("train.max_staleness",),
        lambda models, staleness: _of_base(models) and staleness > 0,
        "holds base, which cannot be computed while its adapter is in an update, but "
        "train.max_staleness lets rollouts run into updates; name a model of an API, or remove it",
    ),
    Rule(
        "agent.max_usd",
        ("agent.models",),
        lambda usd, models: usd is not None and _asks_nobody(models),
        "has no effect where agent.models asks nobody; remove it",
    ),
    Rule(
        "agent.train",
        ("agent.models",),
        _untrained,
        "names a model that agent.models gives to another one, which is not trained; remove it "
        "from one of them",
    ),
    clash(
        {"agent.type": "program", "agent.command": not_},
        "is program, but agent.command is missing, e.g. [node, agent.js]",
    ),
    clash(
        {"agent.type": "function", "agent.use": not_},
        "is function, but agent.use is missing, e.g. agent.py:play",
    ),
    clash(
        {"agent.type": "service", "agent.url": not_},
        "is service, but agent.url is missing, e.g. http://127.0.0.1:8900/episodes",
    ),
    clash(
        {"agent.bind": _is_wildcard, "agent.public_url": None},
        "is all addresses of this machine, but agent.public_url is missing: the service must be "
        "told one of them, e.g. http://10.0.0.5:8901",
    ),
    *(
        Rule(
            f"agent.{key}",
            ("agent.type", "agent.python"),
            lambda value, kind, python, default=default: (
                value != default and kind == "function" and python is None
            ),
            "has no effect on a function in art's own process; add agent.python, or remove it",
        )
        for key, default in (("pass_env", []), ("sandbox", "none"))
    ),
    Rule(
        "reward.agent",
        ("agent.type", "agent.keep", "agent.python"),
        lambda weight, kind, keep, python: (
            weight > 0 and kind != "service" and not keep and python is None
        ),
        "is {0}, but an agent of agent.type={1} gives no reward; remove it, or add agent.keep or "
        "agent.python",
    ),
    clash(
        {"agent.sandbox": "docker", "agent.image": not_},
        "is docker, but agent.image is missing, e.g. node:22",
    ),
)
