"""Rules of the section `agent`."""

from __future__ import annotations

from operator import not_

from art_cli.config.rule import Rule, clash


def _is_wildcard(address: str) -> bool:
    return address.rpartition(":")[0] in ("0.0.0.0", "[::]", "*")


AGENT_RULES = (
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
