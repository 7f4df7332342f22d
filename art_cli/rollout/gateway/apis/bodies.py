"""Incremental parsing of one caller's request bodies: a conversation grows at its end.

    {"model": "m", "messages": [A, B], "tools": [...]}            parsed as a whole
    {"model": "m", "messages": [A, B, C, D], "tools": [...]}      only C and D are parsed

A body that differs in any other way is parsed as a whole, so the result is always the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from art_cli.rollout.gateway.apis.continued import KNOWN
from art_cli.rollout.gateway.apis.request_body import MAX_MESSAGES, read_as
from art_cli.system.untrusted import read_json

M = TypeVar("M", bound=BaseModel)

LONGEST = 2**20  # characters of a body that is remembered
SPACE = re.compile(r"[ \t\n\r]*")
JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Body(Generic[M]):
    """A body, split at the place where its list may be extended."""

    before: str  # up to and including the last item
    behind: str
    request: M


class Bodies(Generic[M]):
    """Parses bodies as `model`, whose list of objects under the key `grows` grows."""

    def __init__(self, model: type[M], grows: str) -> None:
        self._model = model
        self._grows = grows
        self._known: tuple[_Body[M], ...] = ()  # newest first; threads replace the whole tuple

    def read(self, body: bytes) -> M:
        """Parse a body. Raises RequestError, which lists the mistakes.

        Items of its list that an earlier body had too are the same objects as in that request.
        """
        if len(body) > LONGEST:
            return read_as(self._model, body)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return read_as(self._model, body)  # which raises the error
        for known in self._known:
            request = self._going_on(text, known)
            if request is not None:
                self._keep(text[: len(text) - len(known.behind)], known.behind, request, known)
                return request
        request = read_as(self._model, body)
        end = self._end(text) if getattr(request, self._grows) else None
        if end is not None:
            self._keep(text[:end], text[end:], request, None)
        return request

    def _going_on(self, text: str, known: _Body[M]) -> M | None:
        """Parse a body that extends the list of a known body. Return None for any other body."""
        num, rest = len(known.before), len(text) - len(known.behind)
        if num >= rest or not (text.startswith(known.before) and text.endswith(known.behind)):
            return None
        comma = SPACE.match(text, num, rest).end()  # type: ignore[union-attr]
        if text[comma : comma + 1] != ",":
            return None
        try:
            new = read_json(f'{{"":[{text[comma + 1 : rest]}]}}')  # nested as deeply as in the body
        except ValueError:
            return None
        items = [*getattr(known.request, self._grows), *new.get("", [])] if len(new) == 1 else []
        if not 0 < len(items) <= MAX_MESSAGES or not all(type(i) is dict for i in new[""]):
            return None
        return known.request.model_copy(update={self._grows: items}) if new[""] else None

    def _end(self, text: str) -> int | None:
        """Return the offset after the last item of the list, in the text of a JSON object."""
        at = _skip(text, text.index("{") + 1)
        while text[at] == '"':
            key, at = JSON.raw_decode(text, at)
            value, at = JSON.raw_decode(text, _skip(text, _skip(text, at) + 1))
            if key == self._grows:
                end = len(text[: at - 1].rstrip(" \t\n\r"))
                return end if isinstance(value, list) and value else None
            at = _skip(text, _skip(text, at) + 1)
        return None

    def _keep(self, before: str, behind: str, request: M, instead: _Body[M] | None) -> None:
        others = tuple(known for known in self._known if known is not instead)
        self._known = (_Body(before, behind, request), *others[: KNOWN - 1])


def _skip(text: str, at: int) -> int:
    return SPACE.match(text, at).end()  # type: ignore[union-attr]
