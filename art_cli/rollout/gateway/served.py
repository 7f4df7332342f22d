"""The parts of a run that the gateway needs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from art_cli.chat.render import Renderer
from art_cli.engines.base import Engine
from art_cli.errors import UsageError
from art_cli.llms.base import AskedLLM
from art_cli.rollout.gateway.asked import RequestError
from art_cli.rollout.gateway.routes import Routes
from art_cli.system.bounded_cache import Recent
from art_cli.system.deadline import beside

RENDERERS = 32  # renderers in the cache: a program has only a few sets of tools
RENDERER = 2**18  # bytes of tool definitions that count as one renderer


class Served:
    """An engine, chat templates, and the limits of a program that calls the policy."""

    def __init__(
        self,
        engine: Engine | None,
        make_renderer: Callable[[list[Any]], Renderer] | None,
        max_model_len: int,
        *,
        max_tokens: int | None = None,
        answer_tool: str | None = None,
        max_calls: int | None = None,
        routes: Routes | None = None,
    ) -> None:
        """`make_renderer` binds the chat template to a set of tools.

        Engine and template are None if `routes` has a model in the policy's place.

        `max_tokens` is the engine's limit of a turn. `answer_tool` and `max_calls` are settings of
        the config.
        """
        self._engine = engine
        self.routes = routes or Routes()
        self.max_model_len = max_model_len
        self.max_tokens = max_tokens
        self.answer_tool = answer_tool
        self.max_calls = max_calls

        def make(tools: str) -> Renderer:
            assert make_renderer
            return make_renderer(json.loads(tools))

        def size(tools: str, _: Renderer) -> int:
            return max(len(tools), RENDERER)

        self._cached = Recent(make, size, RENDERER * RENDERERS)

    def with_in_its_place(self, llm: AskedLLM) -> Served:
        """Return a copy in which another model answers instead of the policy."""
        other = copy.copy(self)
        other.routes = replace(self.routes, in_its_place=llm)
        return other

    @property
    def engine(self) -> Engine:
        """The policy's engine."""
        assert self._engine
        return self._engine

    async def renderer(self, tools: list[dict[str, Any]], size: int) -> Renderer:
        """Return the chat template with the tools of a request of `size` bytes.

        Raises RequestError if the template cannot be used with them.
        """
        try:
            return await beside(size, self._cached, json.dumps([_plain_tool(t) for t in tools]))
        except UsageError as e:
            raise RequestError(400, str(e)) from None


def _plain_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool without its null fields: templates test whether a field is present."""
    empty = {"description": "", "parameters": {"type": "object", "properties": {}}}
    function = {k: empty.get(k) if v is None else v for k, v in tool["function"].items()}
    return tool | {"function": {k: v for k, v in function.items() if v is not None}}
