"""The resources of an MCP server as two tools, which list and read them.

list_resources()              docs://readme  readme (text/plain): How to begin
read_resource(docs://readme)  Ask a librarian...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

from art_cli import InvalidCallError, Tool

MOST_PAGES = 100  # limit of pages of a list
LIST, READ = "list_resources", "read_resource"
LISTS = "List the resources that can be read, each with its URI; of a template, fill in the braces."
READS = "Read a resource by its URI."
URI = {"uri": {"type": "string", "description": "As in the list."}}


class Resources:
    """The two tools, whose names avoid those of the server's own tools."""

    def __init__(self, client: Any, taken: Collection[str], enough: int) -> None:
        """Stop requesting pages of a list after `enough` characters."""
        self._client = client
        self._enough = enough
        lists, reads = _free(LIST, taken), _free(READ, taken)
        self.tools = [
            Tool(name=lists, description=LISTS, parameters={"type": "object", "properties": {}}),
            Tool(
                name=reads,
                description=READS,
                parameters={"type": "object", "properties": URI, "required": ["uri"]},
            ),
        ]
        self._arguments = {lists: set[str](), reads: {"uri"}}

    def offers(self, name: str) -> bool:
        """Return whether the name is one of the two tools."""
        return name in self._arguments

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return what one of the two gives. Raises InvalidCallError, and what the client raises."""
        wanted = self._arguments[name]
        if arguments.keys() != wanted or not all(isinstance(v, str) for v in arguments.values()):
            takes = "the text uri, and nothing else" if wanted else "no arguments"
            raise InvalidCallError(f"{name} takes {takes}")
        if wanted:
            result = await self._client.read_resource(arguments["uri"], cache_mode="bypass")
            return "\n".join(map(_content, result.contents))
        size, lines = 0, []
        async for line in self._listed():
            lines.append(line)
            if (size := size + len(line) + 1) > self._enough:
                break
        return "\n".join(lines) or "there are none"

    async def _listed(self) -> AsyncIterator[str]:
        async for each in _pages(self._client.list_resources, "resources"):
            size = "" if each.size is None else f"{each.size} bytes"
            yield _line(each.uri, each, size)
        async for each in _pages(self._client.list_resource_templates, "resource_templates"):
            yield _line(each.uri_template, each, "a template")


async def _pages(ask: Callable[..., Awaitable[Any]], field: str) -> AsyncIterator[Any]:
    """Yield the listed items. A server may support only one of the two kinds."""
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND

    cursor = None
    for _ in range(MOST_PAGES):
        try:
            page = await ask(cursor=cursor, cache_mode="bypass")
        except MCPError as e:
            if e.code == METHOD_NOT_FOUND:
                return
            raise
        for each in getattr(page, field):
            yield each
        cursor = page.next_cursor
        if cursor is None:
            return


def _line(uri: str, about: Any, more: str) -> str:
    known = ", ".join(filter(None, (about.mime_type, more)))
    words = " ".join((about.description or "").split())
    return f"{uri}  {about.name}{f' ({known})' if known else ''}{f': {words}' if words else ''}"


def _content(content: Any) -> str:
    """Return the text of a content block, or its type and size if it is not text."""
    text = getattr(content, "text", None)
    if isinstance(text, str):
        return text
    size = len(content.blob.rstrip("=")) * 3 // 4  # of base64
    return f"[{content.mime_type or 'binary'} {content.uri}, {size} bytes]"


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"mcp_{name}"
    return name
