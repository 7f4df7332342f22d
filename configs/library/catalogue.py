"""A library's catalogue, made from a seed, for servers to try `art` with; and questions about it.

python configs/library/catalogue.py > configs/library/tasks.jsonl
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

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
    for question, answer in tasks():
        sys.stdout.write(json.dumps({"question": question, "answer": answer}) + "\n")
