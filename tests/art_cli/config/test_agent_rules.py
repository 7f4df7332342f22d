"""The section `agent`: what belongs together, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from art_cli.config.load import load_experiment
from art_cli.errors import ConfigError

REST = "env: {use: order_desk}\nmodel: {base: tiny}\ntrain: {steps: 1}\n"
URL = "http://127.0.0.1:8900/e"


def problems(tmp_path: Path, *lines: str) -> list[str]:
    """What is wrong with a config whose first lines are these."""
    file = tmp_path / "c.yaml"
    file.write_text("\n".join(lines) + "\n" + REST)
    try:
        load_experiment([file])
    except ConfigError as e:
        return [problem.removeprefix(f"{file}:") for problem in e.problems]
    return []


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("use: service", "1:1: agent.url: is missing"),
        (f"use: program, command: [a], url: '{URL}'", "agent.url: has no effect with agent.use"),
        ("use: service, url: localhost", "expected an address that begins with http://"),
        (f"use: service, url: '{URL}', bind: '8900'", "expected HOST:PORT, e.g. 10.0.0.5:8900"),
        (f"use: service, url: '{URL}', bind: '0.0.0.0:1'", "agent.public_url is missing"),
        ("use: function, function: 'a.py:b', sandbox: bwrap", "add agent.python, or remove it"),
        ("use: function, function: 'a.py:b', keep: true", "has no effect with agent.use=function"),
        ("use: program, command: [a], models: {m: bse}", "expected 'base' or a mapping"),
        ("use: program, command: [a], models: {m: {modl: a, model: b/c}}", "unknown key. Did you"),
        ("use: program, command: [a], max_usd: 1.0", "has no effect where agent.models asks"),
        ("use: program, command: [a], train: mian", "Did you mean 'main'?"),
        (
            "use: program, command: [a], models: {m: {model: b/c}}, train: {models: [m]}",
            "names a model that agent.models gives to another one",
        ),
        ("models: {m: {model: b/c}}", "has no effect with agent.use=builtin"),
        ("use: service, url: 'http://me:hush@h/e'", "holds a password in a URL"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, agent: str, expected: str) -> None:
    [problem] = problems(tmp_path, f"agent: {{{agent}}}")
    assert problem.startswith("1:") and expected.removeprefix("1:1: agent.url: ") in problem


def test_the_agents_reward_needs_an_agent_that_gives_one(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, "agent: {use: program, command: [a]}", "reward: {agent: 1.0}")
    assert problem.startswith("2:") and "agent of agent.use=program gives no reward" in problem
    assert not problems(tmp_path, f"agent: {{use: service, url: '{URL}'}}", "reward: {agent: 1.0}")


def test_the_base_needs_an_adapter_beside_which_it_is_kept(tmp_path: Path) -> None:
    agent = "agent: {use: program, command: [a], models: {title: base}}"
    assert not problems(tmp_path, agent)
    file = tmp_path / "c.yaml"
    for more, expected in (
        ("model.adapter=null", "they are trained themselves"),
        ("train.max_staleness=1", "while its adapter is in an update"),
    ):
        with pytest.raises(ConfigError, match=expected):
            load_experiment([file], [more, "engine.deterministic=false"])
