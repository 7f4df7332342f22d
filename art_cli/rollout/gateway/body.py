"""Reading of a request's body up to a size limit, compressed or not."""

from __future__ import annotations

import zlib

from aiohttp import web

from art_cli.rollout.gateway.asked import RequestError
from art_cli.system.deadline import beside

MAX_BODY = 32 * 2**20  # bytes, compressed and not
ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS  # zlib detects which


async def read_body(request: web.Request) -> bytes:
    """Read and decompress the body. The server must not decompress it: aiohttp enforces its
    limit only after it has used the memory. Raises RequestError.
    """
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise _too_large() from None
    coding = request.headers.get("Content-Encoding", "identity").lower()
    if coding == "identity":
        return body
    if coding not in ("gzip", "deflate"):
        raise RequestError(
            415, f"the body's Content-Encoding {coding!r:.100} is not known: gzip is"
        )
    unpacking = zlib.decompressobj(ZLIB_OR_GZIP)
    try:
        body = await beside(MAX_BODY, unpacking.decompress, body, MAX_BODY + 1)
    except zlib.error as e:
        raise RequestError(400, f"the body is not {coding}: {e}") from None
    if len(body) > MAX_BODY:
        raise _too_large()
    if not unpacking.eof:
        raise RequestError(400, f"the body is not all of its {coding}")
    return body


def _too_large() -> RequestError:
    return RequestError(413, f"the body is larger than {MAX_BODY} bytes")
