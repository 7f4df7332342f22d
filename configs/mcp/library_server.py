"""A small MCP server to try the env `mcp` with: a library's catalogue, made from a seed.

python configs/mcp/library_server.py                                    over stdin and stdout
python configs/mcp/library_server.py --tasks > configs/mcp/tasks.jsonl  questions and answers
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

AUTHORS = ("Ada Quill", "Boris Lund", "Chen Wei", "Dora Marsh", "Emil Sato", "Fay Okoro")
FIRST = ("The Silent", "A Distant", "The Last", "Beyond the", "Under the", "The Glass")
SECOND = ("Harbour", "Orchard", "Lantern", "Mountain", "Letter", "Winter", "Station", "River")


@dataclass(frozen=True, kw_only=True)
class Book:
    """A title that the library has."""

    title: str
    author: str
    year: int
    copies: int
    on_loan: int


def catalogue() -> dict[str, Book]:
    """Return all books by title: the same at every start."""
    rng, books = random.Random(11), {}
    for title in (f"{first} {second}" for first in FIRST for second in SECOND):
        copies = rng.randint(1, 6)
        books[title] = Book(
            title=title,
            author=rng.choice(AUTHORS),
            year=rng.randint(1920, 2020),
            copies=copies,
            on_loan=rng.randint(0, copies),
        )
    return books


BOOKS = catalogue()
server = MCPServer("library")


@server.tool()
def titles_by(author: str) -> list[str]:
    """List the titles by an author, whose full name is given."""
    return [book.title for book in BOOKS.values() if book.author == author]


@server.tool()
def look_up(title: str) -> str:
    """Return a book's author, year, copies and how many of these are on loan."""
    if title not in BOOKS:
        raise ToolError(f"there is no book {title!r}; titles_by lists an author's")
    return json.dumps(asdict(BOOKS[title]))


def tasks() -> Iterator[tuple[str, int]]:
    """Yield questions, each with its answer."""
    for book in BOOKS.values():
        yield f"How many copies of {book.title} are on the shelf?", book.copies - book.on_loan
        yield f"How old was {book.title} in 2024?", 2024 - book.year
    for author in AUTHORS:
        years = [book.year for book in BOOKS.values() if book.author == author]
        yield f"In which year did the first book by {author} come out?", min(years)
        yield (
            f"How many years lie between the first and the last book by {author}?",
            (max(years) - min(years)),
        )
        for year in range(1940, 2011, 10):
            before = sum(y < year for y in years)
            yield f"How many books by {author} came out before {year}?", before


if __name__ == "__main__":
    if "--tasks" in sys.argv:
        for question, answer in tasks():
            sys.stdout.write(json.dumps({"question": question, "answer": answer}) + "\n")
    else:
        server.run()
