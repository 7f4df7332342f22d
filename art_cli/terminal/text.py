"""Printing: every line of this program goes through `say`, or through a Screen.

Models, envs, judges and programs say what they like, and a terminal obeys escape sequences: they
set its title, clear it, fill the clipboard. What the environment alone should know may be in an
error. The first is shown as escapes, the second by its name.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import PurePath
from typing import IO

from art_cli.keys import mask_keys, parts_of, register_key

# Control characters but for the tab and the end of a line, what turns the direction of text, what
# cannot be seen, and halves of characters. Joiners and variation selectors stay: they belong to
# the letters of some languages, and to emoji.
HIDDEN = (  # first and last, of each range
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E)),
    *((0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF)),
    *((0xFFF9, 0xFFFB), (0xD800, 0xDFFF), (0xE0000, 0xE007F)),
)
_HIDDEN = re.compile(f"[{''.join(f'{chr(a)}-{chr(b)}' for a, b in HIDDEN)}]")
_LOGIN = re.compile(r"(?<=://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)")  # user:password of a URL
_SHORTEST = 6  # characters; a shorter value is a word like any other, unless it stands in quotes
_names: dict[str, str] = {}  # what is printed for it, by what must not be seen


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return the text with all that a terminal would obey, or not show, as escapes: `\u001b`.

    They are those of JSON, so that JSON stays JSON. Without `lines`, it is made one line.
    """
    text = _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text.replace("\r\n", "\n"))
    return text if lines else text.replace("\n", "\\n")


def hide(secret: str, name: str) -> None:
    """Never show or write a text, nor its parts; `name` stands in their place.

    What is shorter than a key is hidden on a terminal alone, where it stands in quotes.
    """
    register_key(secret, name)
    for part in {*parts_of(secret)} - {""}:
        _names[repr(part)] = name
        for text in (part, str(PurePath(part)), repr(part)[1:-1], json.dumps(part)[1:-1]):
            if len(text) >= _SHORTEST:
                _names[text] = name


def masked(text: str) -> str:
    """Return the text without what is hidden and without passwords in URLs."""
    if _names:
        longest_first = sorted(_names, key=len, reverse=True)
        text = re.sub("|".join(map(re.escape, longest_first)), lambda m: _names[m[0]], text)
    return _LOGIN.sub("***", mask_keys(text))


def say(text: str = "", *, file: IO[str] | None = None, end: str = "\n") -> None:
    """Print, to stdout by default, what any terminal can show."""
    file = file or sys.stdout
    encoding = getattr(file, "encoding", None) or "utf-8"
    shown = visible(masked(text)).encode(encoding, "replace").decode(encoding)
    print(shown, file=file, end=end, flush=True)


def replace_line(text: str) -> None:
    """Write over the line that a terminal's cursor is on, at stderr."""
    sys.stderr.write(f"\r\033[K{visible(masked(text), lines=False)}")
    sys.stderr.flush()
