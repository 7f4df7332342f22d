"""A small MCP server to try the env `mcp` with: python configs/library/mcp_server.py"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from catalogue import AUTHORS, BOOKS
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

server = MCPServer("library")
READS = ToolAnnotations(read_only_hint=True)  # of a tool without it nobody knows what it changes


@server.tool(annotations=READS)
def titles_by(author: Annotated[str, Field(examples=list(AUTHORS))]) -> list[str]:
    """List the titles by an author, whose full name is given."""
    return [book.title for book in BOOKS.values() if book.author == author]


@server.tool(annotations=READS)
def look_up(title: str) -> str:
    """Return a book's author, year, copies and how many of these are on loan."""
    if title not in BOOKS:
        raise ToolError(f"there is no book {title!r}; titles_by lists an author's")
    return json.dumps(asdict(BOOKS[title]))


if __name__ == "__main__":
    server.run()
