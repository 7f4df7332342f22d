"""The cost of the models that an env asks in one episode."""

from __future__ import annotations

from typing import Any, cast

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Services
from art_cli.errors import ArtError, LLMError, UsageError
from art_cli.llms.base import LLM, ChatMessage, Reply, Schema, Tools


class MeteredServices:
    """Services of one episode: the same models, and `usd` counts what this one has spent."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.usd = 0.0

    def llm(self, cfg: LLMConfig) -> LLM:
        return cast(LLM, _Metered(self._services.llm(cfg), self))


class _Metered:
    """An LLM but for what its answers cost."""

    def __init__(self, llm: LLM, meter: MeteredServices) -> None:
        self._llm = llm
        self._meter = meter

    async def ask(
        self, messages: list[ChatMessage], schema: Schema | None = None, tools: Tools = None
    ) -> Reply:
        try:
            reply = await self._llm.ask(messages, schema, tools)
        except (LLMError, UsageError):  # of this question
            raise
        except ArtError as e:  # the budget is spent, or the engine that answers has died
            e.ends_run = True
            raise
        self._meter.usd += reply.usd
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)
