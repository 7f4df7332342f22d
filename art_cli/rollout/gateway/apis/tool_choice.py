"""The tools that a turn may call, and those that it must call, in any protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from art_cli.rollout.gateway.asked import RequestError

Mode = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools shown to the model, and whether it must call one."""

    tools: list[dict[str, Any]]
    must_call: bool
    forced: str | None


def offer(
    tools: list[dict[str, Any]],
    mode: Mode,
    *,
    only: list[str] | None = None,
    forced: str | None = None,
) -> Offer:
    """Return the tools that a request offers: none with mode "none", else all or `only` those.

    The turn must call the `forced` tool, and the others are still shown. Raises RequestError.
    """
    by_name: dict[str, dict[str, Any]] = {}
    for tool in map(_described, tools):
        name = tool["function"]["name"]
        if by_name.setdefault(name, tool) != tool:  # an identical definition is the same tool
            raise RequestError(400, f"tools: two tools are called {name!r:.200}")
    tools, names = list(by_name.values()), list(by_name)
    wanted = [*(only or []), *([forced] if forced is not None else [])]
    if missing := [name for name in wanted if name not in names]:
        raise RequestError(400, f"tool_choice: {missing[0]:.200} is not among the tools")
    if mode == "none":
        return Offer([], False, None)
    shown = tools if only is None else [t for t in tools if t["function"]["name"] in only]
    if mode == "required" and not shown:
        raise RequestError(400, "tool_choice: a tool is not among the tools: there are none")
    if mode == "required" and only and len(shown) == 1:
        forced = only[0]
    return Offer(shown, mode == "required", forced)


def _described(tool: dict[str, Any]) -> dict[str, Any]:
    """Add an empty description where a client leaves it out: templates read each tool's."""
    function = tool["function"]
    return {**tool, "function": {**function, "description": function.get("description") or ""}}
