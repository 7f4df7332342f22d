"""The bodies of one caller: a conversation grows at its end, and only what is new is read.

    {"model": "m", "messages": [A, B], "tools": [...]}            read as a whole
    {"model": "m", "messages": [A, B, C, D], "tools": [...]}      only C and D are

A body that differs in more than that is read as a whole, so that the outcome is always the same.
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

LONGEST = 2**20  # characters of a body that is kept
SPACE = re.compile(r"[ \t\n\r]*")
JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class _Body(Generic[M]):
    """A body around the place where its list may go on."""

    before: str  # up to and with the last item
    behind: str
    request: M


class Bodies(Generic[M]):
    """Reads bodies as `model`, whose list of objects under the key `grows` grows."""

    def __init__(self, model: type[M], grows: str) -> None:
        self._model = model
        self._grows = grows
        self._known: tuple[_Body[M], ...] = ()  # the newest first; replaced as a whole, by threads

    def read(self, body: bytes) -> M:
        """Return a body. Raises RequestError, with the mistakes.

        The items of its list that it shares with an earlier one are those very objects.
        """
        if len(body) > LONGEST:
            return read_as(self._model, body)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return read_as(self._model, body)  # which says so
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
        """Return a body that is a known one with more in its list; None: it is not."""
        num, rest = len(known.before), len(text) - len(known.behind)
        if num >= rest or not (text.startswith(known.before) and text.endswith(known.behind)):
            return None
        comma = SPACE.match(text, num, rest).end()  # type: ignore[union-attr]
        if text[comma : comma + 1] != ",":
            return None
        try:
            new = read_json(f'{{"":[{text[comma + 1 : rest]}]}}')  # as deep as it stands there
        except ValueError:
            return None
        items = [*getattr(known.request, self._grows), *new.get("", [])] if len(new) == 1 else []
        if not 0 < len(items) <= MAX_MESSAGES or not all(type(i) is dict for i in new[""]):
            return None
        return known.request.model_copy(update={self._grows: items}) if new[""] else None

    def _end(self, text: str) -> int | None:
        """Return where the last item of the list ends, in a text that is known to be an object."""
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
