"""An OpenAPI document: read from a file or a URL, its $refs followed. Mistakes are UsageErrors.

A $ref may name a file in the document's folder, or below it. The $refs in such a file are rewritten
when it is read, so that all of them start from the document's folder: "../pet.yaml#/Dog" in
schemas/owner.yaml becomes "pet.yaml#/Dog".
"""

from __future__ import annotations

import json
import posixpath
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

from art_cli import UsageError, read_yaml
from art_envs.openapi_tools.shapes import Root, Server, shaped
from art_envs.openapi_tools.swagger import is_swagger, upgraded

MOST_BYTES = 2**26  # of a document; GitHub's has 12 MB
URLS = "http://", "https://"
DEEPEST = 20  # limit of chained $refs
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
DATA = ("enum", "const", "default", "example", "examples")  # keywords whose values are not schemas
BUNDLE = "put all into one file, as `npx @redocly/cli bundle` does"


class Document:
    """An OpenAPI document, and lookups in it."""

    def __init__(self, source: str, root: Any) -> None:
        self.source = source
        self.is_swagger = is_swagger(root)
        is_known = isinstance(root, dict) and str(root.get("openapi", "")).startswith("3.")
        if not (is_known or self.is_swagger):
            what = "expected an OpenAPI document (openapi: 3.x, or swagger: 2.0), got none"
            raise UsageError(f"{source}: {what}")
        try:
            root = shaped(Root, root)
        except ValueError as e:
            raise UsageError(f"{source}: {str(e).removeprefix('.')}") from None
        self.root: dict[str, Any] = upgraded(root) if self.is_swagger else root
        self._files: dict[str, Any] = {}  # other files, by path relative to the document's folder
        self._folder = Path(source).parent

    def error(self, place: str, what: str) -> UsageError:
        """Return an error at a place, as "paths./pets.get"."""
        return UsageError(f"{self.source}: {place}: {what}")

    def shaped(self, shape: Any, value: Any, place: str) -> dict[str, Any]:
        """Return a value or the target of its $ref as a `shape` of shapes.py. Raise UsageError."""
        try:
            return shaped(shape, self.resolved(value, place))
        except ValueError as e:
            raise UsageError(f"{self.source}: {place}{e}") from None

    def resolved(self, value: Any, place: str) -> Any:
        """Return a value, or the target of its $ref. Raise UsageError."""
        for _ in range(DEEPEST):
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                return value
            value = self.at(value["$ref"], place)
        raise self.error(place, "its $ref goes round in a circle")

    def at(self, ref: str, place: str) -> Any:
        """Return the target of a $ref. Raise UsageError."""
        file, _, pointer = ref.partition("#")
        found: Any = self._file(file, place, ref) if file else self.root
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise self.error(place, f"its $ref {ref!r} names nothing that is there")
        return found

    def _file(self, file: str, place: str, ref: str) -> Any:
        """Return the contents of another file. Raises UsageError."""
        path = posixpath.normpath(unquote(file))
        if self.source.startswith(URLS) or "://" in file:
            raise self.error(place, f"its $ref {ref!r} is behind a URL; {BUNDLE}")
        if path == Path(self.source).name:
            return self.root
        full = (self._folder / path).resolve()
        if not full.is_relative_to(self._folder.resolve()):
            what = f"its $ref {ref!r} leaves the folder of the document"
            raise self.error(place, f"{what}; {BUNDLE}")
        if path not in self._files:
            if not full.is_file():
                raise self.error(place, f"its $ref {ref!r} names no file below {self._folder}")
            self._files[path] = _rebased(_parsed(str(full), _bytes(full)), path)
        return self._files[path]

    def schema(self, value: Any, place: str, defs: dict[str, Any]) -> Any:
        """Return a JSON schema whose $refs point to `defs`, and add their targets to `defs`."""
        if isinstance(value, list):
            return [self.schema(each, place, defs) for each in value]
        if not isinstance(value, dict):
            return value
        made: dict[str, Any] = {}
        for key, each in value.items():
            if key in MAPS and isinstance(each, dict):
                made[key] = {name: self.schema(v, place, defs) for name, v in each.items()}
            else:
                is_data = key in DATA or key.startswith("x-")
                made[key] = each if is_data else self.schema(each, place, defs)
        if not isinstance(ref := value.get("$ref"), str):
            return _with_bounds(made)
        file, _, pointer = ref.partition("#")
        file = posixpath.normpath(file) if file else ""
        ref = f"#{pointer}" if file == Path(self.source).name else f"{file}#{pointer}"
        name = ref.removeprefix("#/components/schemas/").removeprefix("#/definitions/")
        name = name.replace("/", ".").replace("#", "").strip(".")
        if name not in defs:
            defs[name] = {}  # stops the recursion of a schema that contains itself
            defs[name] = self.schema(self.at(ref, place), place, defs)
        beside = made if str(self.root.get("openapi", "")) >= "3.1" else {}  # before, it is ignored
        return {**beside, "$ref": f"#/$defs/{name}"}

    def server(self, servers: Any, place: str) -> str:
        """Return the URL of the first of `servers`, to which paths are added. Raises UsageError."""
        first = self.shaped(Server, servers[0], place) if servers else {}
        url, variables = str(first.get("url", "")), first.get("variables") or {}
        for name, variable in variables.items():
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
        if self.source.startswith(URLS):
            url = urljoin(self.source, url)
        if not url.startswith(URLS) or "{" in url:
            raise self.error(place, f"{url!r} is no URL; give env.args.base_url")
        return url.rstrip("/")


def read_document(source: str, seconds: float) -> Document:
    """Return the document of a file or a URL, which is read once. Raises UsageError."""
    if source.startswith(URLS):
        return _read(source, None, seconds)
    path = Path(source)
    if not path.is_file():
        raise UsageError(
            f"env.args.spec: there is no file {source!r} (paths are relative to the folder that "
            f"art is started in, {Path.cwd()})"
        )
    return _read(source, path.stat().st_mtime_ns, seconds)


@lru_cache(maxsize=4)  # each episode requests it, and a large document takes seconds to read
def _read(source: str, changed: int | None, seconds: float) -> Document:
    raw = _bytes(Path(source)) if changed is not None else _fetched(source, seconds)
    return Document(source, _parsed(source, raw))


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror}") from None


def _rebased(value: Any, path: str) -> Any:
    """Return the contents of a file at `path` with $refs relative to the document's folder."""
    if isinstance(value, list):
        return [_rebased(each, path) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _rebased(each, path) for key, each in value.items()}
    if isinstance(ref := made.get("$ref"), str) and "://" not in ref:
        file, _, pointer = ref.partition("#")
        target = posixpath.join(posixpath.dirname(path), file) if file else path
        made["$ref"] = f"{posixpath.normpath(target)}#{pointer}"
    return made


def _with_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with numeric exclusive bounds, which are booleans before OpenAPI 3.1."""
    for side in ("minimum", "maximum"):
        exclusive = f"exclusive{side.capitalize()}"
        if isinstance(schema.get(exclusive), bool):
            is_exclusive = schema.pop(exclusive)
            if is_exclusive and side in schema:
                schema[exclusive] = schema.pop(side)
    return schema


def _fetched(url: str, seconds: float) -> bytes:
    """Return the content of a URL within a total time; httpx only limits each read."""
    import httpx

    raw = bytearray()
    client = httpx.Client(timeout=seconds, follow_redirects=True)
    over = threading.Timer(seconds, client.close)  # the next byte that drips in finds it closed
    over.daemon = True
    began = time.monotonic()
    over.start()
    try:
        with client, client.stream("GET", url) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                raw += chunk
                if len(raw) > MOST_BYTES:
                    break
    except Exception as e:  # any error of a connection that was closed during a read
        if time.monotonic() - began >= seconds:
            raise UsageError(
                f"env.args.spec: {url} was not read within {seconds:g} s (env.args.start_timeout)"
            ) from None
        if not isinstance(e, httpx.HTTPError | httpx.InvalidURL):
            raise
        raise UsageError(f"env.args.spec: {url} cannot be fetched: {e}") from None
    finally:
        over.cancel()
    return bytes(raw)


def _parsed(source: str, raw: bytes) -> Any:
    if len(raw) > MOST_BYTES:
        raise UsageError(f"{source}: it has more than {MOST_BYTES >> 20} MB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UsageError(f"{source}: not text in UTF-8: {e}") from None
    why = None
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError) as e:
            why = e
    try:
        return read_yaml(text)
    except ValueError as e:
        raise UsageError(f"{source}: neither JSON nor YAML: {why or e}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raise ValueError for a duplicate key, which would lose a value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r:.60} is given twice; keep one of them")
    return found
