"""Masking of keys and passwords in all text that a run writes.

    os.environ, `${oc.env:NAME}` --> register --> mask_keys(text) --> a file, a tracker, a terminal

Output of envs, agents, judges and servers may contain a key that they were given, so it is masked
before it is written. Keys are found in these forms: unchanged, in upper or lower case, escaped for
JSON, URLs or HTML, and in base64, even within a longer encoded text (`user:key` of Basic auth). A
text without a key costs one search per form, and nothing if no key is registered.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

T = TypeVar("T")

SHORTEST = 8  # characters; shorter values are too common to be masked
_CREDENTIAL = re.compile(  # names of variables with keys
    r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH)S?(?:_?\d+)?", re.IGNORECASE
)
_HEADERS = re.compile(r".*HEADERS", re.IGNORECASE)  # OTEL_EXPORTER_OTLP_HEADERS: NAME=VALUE,...
_SCHEME = re.compile(r"\s*(?:Bearer|Basic|Token)\s+", re.IGNORECASE)


class _Forms(NamedTuple):
    """All texts that are searched for."""

    names: dict[str, str]  # the replacement of each form, in lower case
    longest: int  # characters of the longest form


_given: dict[str, str] = {}  # names of keys in a config, by key
_found: dict[str, str] = {}  # names of keys in the environment, by key
_known = _Forms({}, 0)


def _compile() -> None:
    global _known
    names = {
        form.lower(): name
        for value, name in (_found | _given).items()
        for part in parts_of(value)
        for form in _forms(part)
        if len(form) >= SHORTEST
    }
    _known = _Forms(names, max(map(len, names), default=0))  # atomically: other threads read it


def register_key(value: str, name: str) -> None:
    """Mask a key and its parts from now on, with `name` instead. Ignores short keys."""
    if len(value) >= SHORTEST and _given.get(value) != name:
        _given[value] = name
        _compile()


def register_environment(more: Collection[str] = ()) -> None:
    """Mask the values of variables whose names suggest a key, and of the variables `more`.

    Paths of existing files are not masked. Replaces keys found in the environment before.
    """
    global _found
    found = dict[str, str]()
    for name, value in os.environ.items():
        if name not in more and not _CREDENTIAL.fullmatch(name) and not _HEADERS.fullmatch(name):
            continue
        values = [value]
        if _HEADERS.fullmatch(name):
            values = [unquote(pair.partition("=")[2]).strip() for pair in value.split(",")]
        for each in values:
            if len(each) >= SHORTEST and not _exists(each):
                found[each] = f"${{oc.env:{name}}}"
    if found != _found:
        _found = found
        _compile()


def parts_of(value: str) -> Iterator[str]:
    """Yield a key and its secret parts: a password, a line, the text after `Bearer`."""
    yield value
    if "://" in value:
        try:
            yield unquote(urlsplit(value).password or "")
        except ValueError:
            return
        return
    yield _SCHEME.sub("", value, count=1)
    yield from value.split(":")
    if "\n" in value:
        yield from (line for line in value.splitlines() if not line.startswith("-----"))


def mask_keys(text: str) -> str:
    """Replace each key in a text with the name of its variable."""
    names, _ = _known
    if not names:
        return text
    lower = text.lower()
    found = [form for form in names if form in lower]
    if not found:
        return text
    if len(lower) != len(text):  # lowercasing some letters changes the length, and so the offsets
        text = lower
    pattern = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))))
    parts, end = list[str](), 0
    for match in pattern.finditer(lower):
        parts += text[end : match.start()], names[match[0]]
        end = match.end()
    return "".join(parts) + text[end:]


def mask_keys_in(value: T) -> T:
    """Mask all text in a JSON-like value, including keys of objects."""
    return _masked(value) if _known.names else value


def short_repr(value: object, most: int = 200) -> str:
    """Return the beginning of a value's repr, masked first: half a key would not be recognized."""
    return mask_keys(repr(value))[:most]


def holds_key(text: str) -> bool:
    """Return whether a text contains a key to mask."""
    return mask_keys(text) != text


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_keys(value)
    if isinstance(value, dict):
        return {
            mask_keys(key) if isinstance(key, str) else key: _masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item) for item in value]
    is_plain = value is None or isinstance(value, int | float)
    return value if is_plain else mask_keys(str(value))  # the form in which `json_line` writes it


def _exists(value: str) -> bool:
    try:
        return os.path.exists(value)
    except ValueError:
        return False


def _forms(key: str) -> Iterator[str]:
    """Yield the forms in which a key may occur in a text."""
    yield from (key, key.upper(), key.lower())
    yield key.encode(errors="replace").decode("latin-1")  # see KeyFilter
    escaped = [json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1]]
    yield from escaped
    yield from (json.dumps(text)[1:-1] for text in escaped)  # JSON inside a JSON string
    yield from (repr(key)[1:-1], html.escape(key), html.escape(key, quote=False))
    yield from (quote(key, safe=""), quote(key), quote_plus(key))
    raw = key.encode(errors="surrogatepass")
    for before in range(3):  # number of bytes before the key in a longer text, modulo 3
        # Only the characters that do not depend on bytes before or after the key.
        begin, end = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + raw).decode()[begin:end]


class KeyFilter:
    """Masks keys in a text that arrives in chunks of bytes.

    The beginning of a possible key is held back until more text, or the end, decides.
    """

    def __init__(self) -> None:
        self._waiting = ""

    def next(self, chunk: bytes) -> bytes:
        """Return the text, masked, that no later chunk can change."""
        # Latin-1 maps each byte to one character, so chunks may end inside a UTF-8 character.
        text = mask_keys(self._waiting + chunk.decode("latin-1"))
        cut = _begin_of_key(text)
        self._waiting = text[cut:]
        return text[:cut].encode("latin-1")

    def rest(self) -> bytes:
        """Return the text that is still held back, at the end."""
        rest, self._waiting = self._waiting, ""
        return rest.encode("latin-1")


class MaskedOutput:
    """Copies the output of a process without keys."""

    def __init__(self, printed: IO[bytes], keep: Callable[[bytes], object]) -> None:
        """`keep` receives the output, in a thread that ends with it."""
        self._printed, self._keep = printed, keep
        self._thread = threading.Thread(target=self._copy, name="art-output", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all output is copied, if the process has ended."""
        self._thread.join(seconds)

    def _copy(self) -> None:
        masking = KeyFilter()
        with self._printed as printed:
            while chunk := printed.read1(2**16):  # type: ignore[attr-defined]
                self._put(masking.next(chunk))
        self._put(masking.rest())

    def _put(self, text: bytes) -> None:
        with suppress(OSError, ValueError):  # a full disk or closed file must not block it
            self._keep(text)


def _begin_of_key(text: str) -> int:
    """Return the offset at which an incomplete key may begin; else the text's length."""
    names, longest = _known
    lower = text[-longest:].lower() if longest else ""
    for place in range(len(lower)):
        rest = lower[place:]
        if any(form.startswith(rest) for form in names):
            return len(text) - len(rest)
    return len(text)
