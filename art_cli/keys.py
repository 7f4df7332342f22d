"""Keys and passwords, and the texts that a run writes without them.

    os.environ, `${oc.env:NAME}` --> register --> mask_keys(text) --> a file, a tracker, a terminal

Envs, agents, judges and servers say what they like, and what they say may hold a key that they were
given. Whatever writes it down masks it first. A key is found as it is, in upper or lower case, as
JSON, a URL or HTML escapes it, and in base64, also in the middle of a longer text that was encoded
(`user:key` of Basic auth). A text without a key costs one search a form, and nothing where no key
is registered.
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

SHORTEST = 8  # characters; a shorter value is a word like any other
_CREDENTIAL = re.compile(  # the name of a variable
    r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH)S?(?:_?\d+)?", re.IGNORECASE
)
_HEADERS = re.compile(r".*HEADERS", re.IGNORECASE)  # OTEL_EXPORTER_OTLP_HEADERS: NAME=VALUE,...
_SCHEME = re.compile(r"\s*(?:Bearer|Basic|Token)\s+", re.IGNORECASE)


class _Forms(NamedTuple):
    """All that is looked for."""

    names: dict[str, str]  # what stands for it, by a form in lower case
    longest: int  # characters


_given: dict[str, str] = {}  # the name of a key that a config holds, by the key
_found: dict[str, str] = {}  # of one that the environment holds
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
    _known = _Forms(names, max(map(len, names), default=0))  # at once: other threads read it


def register_key(value: str, name: str) -> None:
    """Have a key and its parts masked; `name` stands in its place. A short one is left alone."""
    if len(value) >= SHORTEST and _given.get(value) != name:
        _given[value] = name
        _compile()


def register_environment(more: Collection[str] = ()) -> None:
    """Have the values of all variables masked that hold a key by their name, and of `more`.

    The path of something that exists is no key. What the environment held before is forgotten.
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
    """Yield a key, and what of it is a key by itself: a password, a line, what follows `Bearer`."""
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
    """Return the text with the name of its variable in the place of each key."""
    names, _ = _known
    if not names:
        return text
    lower = text.lower()
    found = [form for form in names if form in lower]
    if not found:
        return text
    if len(lower) != len(text):  # of a few letters: places in one are none in the other
        text = lower
    pattern = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))))
    parts, end = list[str](), 0
    for match in pattern.finditer(lower):
        parts += text[end : match.start()], names[match[0]]
        end = match.end()
    return "".join(parts) + text[end:]


def mask_keys_in(value: T) -> T:
    """Return what JSON can hold with every text in it masked, keys of objects included."""
    return _masked(value) if _known.names else value


def short_repr(value: object, most: int = 200) -> str:
    """Return the beginning of a value's repr, without keys: half a key would not be found later."""
    return mask_keys(repr(value))[:most]


def holds_key(text: str) -> bool:
    """Return whether something in the text would be masked."""
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
    return value if is_plain else mask_keys(str(value))  # as `json_line` writes it


def _exists(value: str) -> bool:
    try:
        return os.path.exists(value)
    except ValueError:
        return False


def _forms(key: str) -> Iterator[str]:
    """Yield the texts that a key can stand in."""
    yield from (key, key.upper(), key.lower())
    yield key.encode(errors="replace").decode("latin-1")  # see KeyFilter
    escaped = [json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1]]
    yield from escaped
    yield from (json.dumps(text)[1:-1] for text in escaped)  # JSON in a text of JSON
    yield from (repr(key)[1:-1], html.escape(key), html.escape(key, quote=False))
    yield from (quote(key, safe=""), quote(key), quote_plus(key))
    raw = key.encode(errors="surrogatepass")
    for before in range(3):  # bytes in front of it, of a longer text
        # Only characters that no byte before or after the key decides.
        begin, end = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + raw).decode()[begin:end]


class KeyFilter:
    """Masks keys in a text that comes in chunks of bytes.

    What could be the begin of a key waits for what follows it, or for the end.
    """

    def __init__(self) -> None:
        self._waiting = ""

    def next(self, chunk: bytes) -> bytes:
        """Return what can be told of all that came and was not returned yet."""
        # Latin-1 has a character for each byte: a text cut within one is put together again.
        text = mask_keys(self._waiting + chunk.decode("latin-1"))
        cut = _begin_of_key(text)
        self._waiting = text[cut:]
        return text[:cut].encode("latin-1")

    def rest(self) -> bytes:
        """Return what still waits, at the end."""
        rest, self._waiting = self._waiting, ""
        return rest.encode("latin-1")


class MaskedOutput:
    """Copies what a process prints to wherever it is kept, without keys."""

    def __init__(self, printed: IO[bytes], keep: Callable[[bytes], object]) -> None:
        """`keep` is called in a thread, which ends with the output."""
        self._printed, self._keep = printed, keep
        self._thread = threading.Thread(target=self._copy, name="art-output", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until all is kept, if whoever prints has ended."""
        self._thread.join(seconds)

    def _copy(self) -> None:
        masking = KeyFilter()
        with self._printed as printed:
            while chunk := printed.read1(2**16):  # type: ignore[attr-defined]
                self._put(masking.next(chunk))
        self._put(masking.rest())

    def _put(self, text: bytes) -> None:
        with suppress(OSError, ValueError):  # a full disk or a closed file holds up nobody
            self._keep(text)


def _begin_of_key(text: str) -> int:
    """Return where a key may begin that ends after the end of the text; else the text's length."""
    names, longest = _known
    lower = text[-longest:].lower() if longest else ""
    for place in range(len(lower)):
        rest = lower[place:]
        if any(form.startswith(rest) for form in names):
            return len(text) - len(rest)
    return len(text)
