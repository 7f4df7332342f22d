"""Calls of an HTTP API, each with a deadline and a limit on the size of its result."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx

from art_cli import InvalidCallError, Tool, ToolError, UsageError
from art_envs.openapi_tools.bodies import content_of
from art_envs.openapi_tools.document import Document, read_document
from art_envs.openapi_tools.operations import Operation, operations_of
from art_envs.openapi_tools.parameters import quoted
from art_envs.openapi_tools.settings import OpenApiSettings
from art_envs.openapi_tools.shapes import Scheme
from art_envs.tasks.with_tools import ServerError, cut, did_you_mean

MOST_BYTES = 2**22  # limit of bytes read from an answer
TEXT = ("json", "text", "xml", "yaml", "csv", "javascript", "urlencoded")  # kinds that are shown
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that may be retried (RFC 9110, 9.2.1)
LEAST_WAIT = 0.1  # seconds
NOT_THE_MODEL = (401, 407, 429, 502, 503, 504)  # answers that no argument is to blame for


class Api:
    """An open API. `tools` are the operations that the settings allow."""

    def __init__(
        self, cfg: OpenApiSettings, document: Document, operations: dict[str, Operation]
    ) -> None:
        self._cfg = cfg
        self._bases = {name: _base(document, cfg, each) for name, each in operations.items()}
        self._operations = operations
        self._credentials = {
            name: _credentials(document, cfg, operation) for name, operation in operations.items()
        }
        self._client = httpx.AsyncClient(timeout=cfg.call_timeout, verify=_certificates())
        self.tools: list[Tool] = [operation.tool for operation in operations.values()]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return what an operation gives, as text. Raise ToolError (it refuses), ServerError."""
        operation = self._operations[name]
        request = self._request(operation, arguments)
        seconds = self._cfg.call_timeout
        until = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                while True:
                    response, body, is_whole = await self._sent(request)
                    wait = _retry_after(response)
                    if wait is None or time.monotonic() + wait >= until:
                        break
                    await asyncio.sleep(wait)
        except (TimeoutError, httpx.TimeoutException):
            what = f"did not answer within {seconds:g} s (env.args.call_timeout)"
            raise ServerError(f"{self._named(operation)} {what}") from None
        except httpx.HTTPError as e:  # the error's text may contain the URL, with a key in it
            raise ServerError(f"{self._named(operation)} failed: {type(e).__name__}") from None
        text = _text(response, body, is_whole, self._cfg.max_result)
        status = f"{response.status_code} {response.reason_phrase}".strip()
        if response.status_code in NOT_THE_MODEL:
            late = f" (and asks for another {wait:.0f} s)" if wait is not None else ""
            raise ServerError(f"{self._named(operation)} answered {status}{late}: {text[:500]}")
        if not response.is_success:
            raise ToolError(f"{status}: {text}" if text else status)
        return text + _next_page(response)

    async def check(self) -> None:
        """Do nothing: an API has no state that could be checked."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _named(self, operation: Operation) -> str:
        return f"{operation.method} {self._bases[operation.tool.name]}{operation.path}"

    async def _sent(self, request: httpx.Request) -> tuple[httpx.Response, bytes, bool]:
        """Return (the response, its body, whether the body is complete)."""
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MOST_BYTES:
                    return response, bytes(body[:MOST_BYTES]), False
            return response, bytes(body), True
        finally:
            await response.aclose()

    def _request(self, operation: Operation, arguments: dict[str, Any]) -> httpx.Request:
        """Return the request of a call. Raise ToolError if the arguments are invalid."""
        schema = operation.tool.parameters
        if unknown := [a for a in arguments if a not in schema["properties"]]:
            hint = did_you_mean(unknown[0], schema["properties"])
            raise InvalidCallError(
                f"{operation.tool.name} has no argument {unknown[0]!r:.100}.{hint}"
            )
        if missing := [a for a in schema["required"] if arguments.get(a) is None]:
            raise InvalidCallError(f"{operation.tool.name} needs {', '.join(missing)}")
        headers, query, path = {"Accept": "application/json, */*;q=0.5"}, [], operation.path
        sent: dict[str, Any] = {}
        cookies: list[str] = []
        for p in operation.parameters:
            value = arguments.get(p.argument)
            if value is None:
                continue
            if p.place == "path":
                path = path.replace(f"{{{p.name}}}", p.segment(value))
            elif p.place == "query":
                query += p.pairs(value, quoted)
            elif p.place == "header":
                headers[p.name] = p.header(value)
            elif p.place == "cookie":
                cookies.append(p.cookie(value))
            else:
                sent = content_of(p, value)
                headers |= sent.pop("headers", {})
        more_headers, more_query = self._credentials[operation.tool.name]
        headers |= more_headers
        if cookies:
            headers["Cookie"] = "; ".join([*cookies, *filter(None, [headers.get("Cookie")])])
        url = f"{self._bases[operation.tool.name]}{path}"
        query += [(quoted(name), quoted(text)) for name, text in more_query]
        if query:
            text = "&".join(f"{name}={value}" for name, value in query)
            url += f"{'&' if '?' in url else '?'}{text}"
        try:
            return self._client.build_request(operation.method, url, headers=headers, **sent)
        except (httpx.InvalidURL, UnicodeEncodeError) as e:  # half a surrogate pair
            raise InvalidCallError(f"no request can be made of these arguments: {e}") from None


@cache  # creating one takes longer than an episode
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


@asynccontextmanager
async def opened(cfg: OpenApiSettings) -> AsyncIterator[Api]:
    """Read the document and yield its API. Raise UsageError."""
    document = await asyncio.to_thread(read_document, cfg.spec, cfg.start_timeout)
    operations = await asyncio.to_thread(operations_of, document, cfg.operations)
    api = Api(cfg, document, operations)
    try:
        yield api
    finally:
        await api.close()


def _credentials(
    document: Document, cfg: OpenApiSettings, operation: Operation
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return (headers, query) that authenticate a call, from the environment. Raises UsageError."""
    known = (document.root.get("components") or {}).get("securitySchemes") or {}
    for scheme in cfg.auth:
        if scheme not in known:
            shown = ", ".join(known) or "none"
            what = f"env.args.auth: {document.source} has no scheme {scheme!r}; it has {shown}."
            raise UsageError(what + did_you_mean(scheme, known))
    groups = operation.schemes
    chosen = next((group for group in groups if all(s in cfg.auth for s in group)), None)
    if groups and chosen is None:
        wanted = " or ".join(" and ".join(group) for group in groups)
        raise document.error(
            operation.where,
            f"it needs {wanted}; give env.args.auth: {{{groups[0][0]}: NAME_OF_A_VARIABLE}}, or "
            f"{{{groups[0][0]}: null}} to call without credentials",
        )
    headers: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    for scheme in chosen or ():
        variable = cfg.auth[scheme]
        if variable is None:
            continue
        token = os.environ.get(variable)
        if not token:
            raise UsageError(f"env.args.auth.{scheme}: the variable {variable} is not set")
        place = f"components.securitySchemes.{scheme}"
        how = document.shaped(Scheme, known[scheme], place)
        if how["type"] == "apiKey" and "name" not in how:
            raise document.error(place, "it has no name")
        if how.get("type") == "apiKey" and how.get("in") == "query":
            query.append((how["name"], token))
        elif how.get("type") == "apiKey":
            is_cookie = how.get("in") == "cookie"
            headers |= {"Cookie": f"{how['name']}={token}"} if is_cookie else {how["name"]: token}
        elif str(how.get("scheme")).lower() == "basic":
            headers["Authorization"] = f"Basic {base64.b64encode(token.encode()).decode()}"
        else:  # bearer, oauth2, openIdConnect
            headers["Authorization"] = f"Bearer {token}"
    return headers, query


def _base(document: Document, cfg: OpenApiSettings, operation: Operation) -> str:
    """Return the base URL of an operation. Raises UsageError.

    `base_url` replaces the document's servers, for example by a copy of the API. An operation that
    names its own server would bypass it, so the two are refused together.
    """
    if operation.server is None:
        if cfg.base_url is not None:
            return cfg.base_url.rstrip("/")
        return document.server(document.root.get("servers"), "servers")
    if cfg.base_url is not None:
        raise document.error(
            f"{operation.where}.servers",
            f"it is at {operation.server}, which env.args.base_url does not replace; remove its "
            f'servers, or leave it out with "!{operation.tool.name}" in env.args.operations',
        )
    return operation.server


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds to wait before a retry; None: do not retry (RFC 9110, 10.2.3)."""
    said = response.headers.get("retry-after")
    # A 429 was not processed. A 503 may come from a proxy after the server has done its work.
    is_safe = response.status_code == 503 and response.request.method in SAFE
    if said is None or not (is_safe or response.status_code == 429):
        return None
    if said.strip().isdecimal():
        return max(float(said), LEAST_WAIT)
    try:
        return max(parsedate_to_datetime(said).timestamp() - time.time(), LEAST_WAIT)
    except (ValueError, OverflowError):
        return None


def _next_page(response: httpx.Response) -> str:
    """Return a line about the next page, or "" if there is none (RFC 8288).

    It names the arguments that differ there, which the model may use in another call.
    """
    links = (link for link in response.links.values() if "next" in _words(link.get("rel")))
    url = next((link.get("url") for link in links), None)
    if url is None:
        return ""
    try:
        asked, there = response.request.url.params, httpx.URL(url).params
    except httpx.InvalidURL:
        return "\n... (there is another page)"
    other = ", ".join(f"{k}={v}" for k, v in there.multi_items() if v not in asked.get_list(k))
    return f"\n... (there is another page{f': {other}' if other else ''})"


def _words(text: str | None) -> list[str]:
    return (text or "").lower().split()


def _text(response: httpx.Response, body: bytes, is_whole: bool, most: int) -> str:
    kind = response.headers.get("content-type", "text/plain")
    if body and not any(word in kind.lower() for word in TEXT):
        return f"[{kind}, {len(body)}{'' if is_whole else ' or more'} bytes]"
    try:
        text = body.decode(response.charset_encoding or "utf-8", errors="replace")
    except LookupError:  # an unknown encoding
        text = body.decode(errors="replace")
    return cut(text, most) + ("" if is_whole else f"\n... (only {MOST_BYTES} bytes were read)")
