"""A small HTTP API to try the env `openapi` with: python configs/library/http_server.py [PORT]"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from catalogue import BOOKS


class Library(BaseHTTPRequestHandler):
    """Answers as openapi.yaml says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        at = urlsplit(self.path)
        title = unquote(at.path.removeprefix("/books/"))
        if at.path == "/books":
            author = parse_qs(at.query).get("author", [""])[0]
            self._answer(200, [book.title for book in BOOKS.values() if book.author == author])
        elif title in BOOKS:
            self._answer(200, asdict(BOOKS[title]))
        else:
            self._answer(404, {"error": f"there is no book {title!r}; /books lists an author's"})

    def _answer(self, status: int, value: object) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8321
    ThreadingHTTPServer(("127.0.0.1", port), Library).serve_forever()
