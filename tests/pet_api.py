"""A real HTTP API on a loopback port, with a document as large as those of the real world.

    with PetApi() as api:
        OpenApiSettings(spec=str(api.write(folder)), base_url=api.url, ...)

It has pets, and some 600 operations on other things, which its document tells of and which echo
what they were called with.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

PETS = {str(i): {"id": i, "name": f"Pet {i}", "status": ("sold", "free")[i % 2]} for i in range(9)}
PET = {"$ref": "#/components/schemas/Pet"}
STATUS = {"type": "string", "enum": ["sold", "free"]}


def parameter(name: str, place: str = "query", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"}} | more


def document() -> dict[str, Any]:
    """Return a document of 609 operations, whose schemas refer to themselves and to each other."""
    schemas: dict[str, Any] = {
        "Pet": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "status": STATUS,
                "parent": PET,  # which contains itself
                "thing": {"$ref": "#/components/schemas/Thing0"},
            },
        }
    }
    pet_id = {"$ref": "#/components/parameters/petId"}
    json_pet = {"required": True, "content": {"application/json": {"schema": PET}}}
    paths: dict[str, Any] = {
        "/pets": {
            "get": {
                "operationId": "findPets",
                "summary": "List pets by status.",
                "parameters": [parameter("status", schema=STATUS)],
            },
            "post": {"operationId": "createPet", "requestBody": json_pet},
        },
        "/pets/{petId}": {
            "parameters": [pet_id],
            "get": {"operationId": "pets/get", "description": "Return a pet."},
            "delete": {"operationId": "deletePet", "security": [{"token": []}]},
        },
        "/count": {"get": {"operationId": "count", "summary": "Return how many were asked."}},
        "/once": {"get": {"operationId": "echo503"}, "post": {"operationId": "write503"}},
        "/odd": {"get": {"operationId": "odd", "parameters": [parameter("how")]}},
        "/echo/{id}": {
            "get": {
                "operationId": "echo",
                "parameters": [
                    parameter("id", "path", required=True),
                    parameter("id"),
                    parameter("tags", schema={"type": "array", "items": {"type": "string"}}),
                    parameter("ids", schema={"type": "array"}, explode=False),
                    parameter("deep", schema={"type": "object"}, style="deepObject"),
                    parameter("X-Trace", "header"),
                    parameter("Authorization", "header", required=True),
                ],
                "security": [{"key": [], "basic": []}, {"token": []}, {"inQuery": []}],
            }
        },
    }
    for i in range(300):
        name = f"Thing{i}"
        other = {"$ref": f"#/components/schemas/Thing{(i * 7 + 1) % 300}"}
        schemas[name] = {
            "type": "object",
            "properties": {"next": other, "note": {"type": "string"}},
        }
        body = {
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        }
        paths[f"/things/{i}/{{id}}"] = {
            "parameters": [parameter("id", "path", required=True)],
            "get": {
                "operationId": f"getThing{i}",
                "summary": f"Return thing {i}. " + "More. " * 40,
            },
            "put": {"operationId": f"putThing{i}", "requestBody": body},
        }
    return {
        "openapi": "3.1.0",
        "servers": [{"url": "https://{host}/v1", "variables": {"host": {"default": "pets.test"}}}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {"petId": parameter("petId", "path", required=True, example="3")},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
                "inQuery": {"type": "apiKey", "in": "query", "name": "api_key"},
            },
        },
    }


@dataclass
class PetApi:
    """The server. `asked` are the requests: method, path, query, headers, body."""

    asked: list[tuple[str, str, list[tuple[str, str]], dict[str, str], str]] = field(
        default_factory=list
    )
    text: str = ""  # of the document, at /openapi.json

    def __enter__(self) -> PetApi:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                at = urlsplit(self.path)
                query = parse_qsl(at.query)
                query_of = dict(query)
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length).decode()
                headers = {k.lower(): v for k, v in self.headers.items()}
                api.asked.append((self.command, at.path, query, headers, body))
                status, found, kind = api.found(self.command, at.path, query_of, body)
                raw = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                if status == 503 or "busy" in query_of.get("how", ""):
                    is_long = "long" in query_of.get("how", "")
                    self.send_header("Retry-After", "60" if is_long else "0")
                if query_of.get("how", "").startswith("page"):
                    last, this = "</odd?how=page>; rel=prev", f"http://{self.headers['Host']}/odd"
                    self.send_header("Link", f'{last}, <{this}?how=page2&cursor=abc>; rel="next"')
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def write(self, folder: Path) -> Path:
        """Write the document, and return its path."""
        path = folder / "pets.json"
        path.write_text(json.dumps(document()))
        return path

    def found(
        self, method: str, path: str, query: dict[str, str], body: str
    ) -> tuple[int, Any, str]:
        """Return (status, what is answered, its kind)."""
        kind = "application/json"
        if path == "/openapi.json":
            return 200, self.text.encode(), kind
        if path == "/count":
            return 200, {"asked": len(self.asked)}, kind
        if path == "/once":
            again = sum(asked[:2] == (method, path) for asked in self.asked) > 1
            return (200, "done", kind) if again else (503, "later", kind)
        if path == "/odd":
            return self.odd(query.get("how", ""))
        if path == "/pets" and method == "GET":
            return 200, [p for p in PETS.values() if p["status"] == query.get("status")], kind
        if path.startswith("/pets/"):
            pet = PETS.get(unquote(path[6:]))
            return (200, pet, kind) if pet else (404, {"error": "there is no such pet"}, kind)
        return 200, {"method": method, "path": path, "body": body and json.loads(body)}, kind

    def odd(self, how: str) -> tuple[int, Any, str]:
        """Answer as no API should."""
        if how == "slow":
            time.sleep(6)
        if how.startswith("busy"):
            again = sum("busy" in str(asked[2]) for asked in self.asked) == 3
            return (200, "at last", "application/json") if again else (429, how, "text/plain")
        if how.isdigit():
            return int(how), {"error": how}, "application/json"
        if how.startswith("page"):
            return 200, [how], "application/json"
        if how == "huge":
            return 200, b"x" * 5_000_000, "text/plain; charset=no-such"
        return 200, b"\x89PNG", "image/png"
