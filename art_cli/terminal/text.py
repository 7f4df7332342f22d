"""Printing: every line of this program goes through `say`, or through a Screen.

Models, envs, judges and programs may print escape sequences, which a terminal obeys: they set its
title, clear it, or fill the clipboard. Errors may contain secrets of the environment. Escape
sequences are printed as escapes, and secrets as the names of their variables.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import PurePath
from typing import IO

from art_cli.keys import mask_keys, parts_of, register_key

# Control characters except tab and line feed, characters that change text direction, invisible
# characters, and lone surrogates. Joiners and variation selectors are allowed: some languages and
# emoji need them.
HIDDEN = (  # first and last, of each range
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E)),
    *((0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF)),
    *((0xFFF9, 0xFFFB), (0xD800, 0xDFFF), (0xE0000, 0xE007F)),
)
_HIDDEN = re.compile(f"[{''.join(f'{chr(a)}-{chr(b)}' for a, b in HIDDEN)}]")
_LOGIN = re.compile(r"(?<=://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)")  # user:password in a URL
_SHORTEST = 6  # characters; shorter values are masked only in quotes
_names: dict[str, str] = {}  # the replacement of each hidden text


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return the text with characters that a terminal obeys or hides as escapes: `\u001b`.

    The escapes are those of JSON, so JSON stays valid. Without `lines`, line feeds are escaped.
    """
    text = _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text.replace("\r\n", "\n"))
    return text if lines else text.replace("\n", "\\n")


def hide(secret: str, name: str) -> None:
    """Never show or write a text or its parts, but `name` instead.

    A text shorter than a key is masked only on a terminal, and only in quotes.
    """
    register_key(secret, name)
    for part in {*parts_of(secret)} - {""}:
        _names[repr(part)] = name
        for text in (part, str(PurePath(part)), repr(part)[1:-1], json.dumps(part)[1:-1]):
            if len(text) >= _SHORTEST:
                _names[text] = name


def masked(text: str) -> str:
    """Replace hidden texts, keys, and passwords in URLs."""
    if _names:
        longest_first = sorted(_names, key=len, reverse=True)
        text = re.sub("|".join(map(re.escape, longest_first)), lambda m: _names[m[0]], text)
    return _LOGIN.sub("***", mask_keys(text))


def say(text: str = "", *, file: IO[str] | None = None, end: str = "\n") -> None:
    """Print a text in a form that any terminal can show, by default to stdout."""
    file = file or sys.stdout
    encoding = getattr(file, "encoding", None) or "utf-8"
    shown = visible(masked(text)).encode(encoding, "replace").decode(encoding)
    print(shown, file=file, end=end, flush=True)


def replace_line(text: str) -> None:
    """Replace the line at a terminal's cursor, on stderr."""
    sys.stderr.write(f"\r\033[K{visible(masked(text), lines=False)}")
    sys.stderr.flush()
