"""Models that vLLM can serve, and the servers that tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_contract import NEVER, Start
from vllm_servers import Servers

from art_cli.engines.vllm.engine import VLLMEngine
from art_cli.models.policy import Policy


@pytest.fixture
def hidden_size() -> int:
    """vLLM's attention wants heads of at least 32 dimensions."""
    return 64


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    kept = Servers(tmp_path_factory.mktemp("servers"))
    yield kept
    kept.close()


@pytest.fixture
def start(servers: Servers, make_policy: Callable[..., Policy]) -> Iterator[Start]:
    """A server takes half a minute to start: a test gets one that has had other weights before."""
    engines: list[VLLMEngine] = []

    def make(
        policy: Policy, *, stop_ids: frozenset[int] = NEVER, apart: bool = False, **settings: Any
    ) -> VLLMEngine:
        base = make_policy() if policy.has_adapter else policy
        engines.append(servers.engine(policy, base, stop_ids, settings))
        return engines[-1]

    yield make
    for engine in engines:
        asyncio.run(engine.close())
