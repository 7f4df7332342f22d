"""Metering of the models that an env calls in one episode."""

from __future__ import annotations

from typing import Any, cast

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Services
from art_cli.errors import ArtError, LLMError, UsageError
from art_cli.llms.base import LLM, ChatMessage, Reply, Schema, Tools


class MeteredServices:
    """Services of one episode. `usd` is the cost of its calls so far."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.usd = 0.0

    def llm(self, cfg: LLMConfig) -> LLM:
        return cast(LLM, _Metered(self._services.llm(cfg), self))


class _Metered:
    """An LLM that adds the cost of its answers to the meter."""

    def __init__(self, llm: LLM, meter: MeteredServices) -> None:
        self._llm = llm
        self._meter = meter

    async def ask(
        self, messages: list[ChatMessage], schema: Schema | None = None, tools: Tools = None
    ) -> Reply:
        try:
            reply = await self._llm.ask(messages, schema, tools)
        except (LLMError, UsageError):  # concerns this request only
            raise
        except ArtError as e:  # the budget is used up, or the engine has died
            e.ends_run = True
            raise
        self._meter.usd += reply.usd
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)
