"""What may be printed: every line of this program goes through `say`, or through a Screen.

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

# Control characters but for the tab and the end of a line, what turns the direction of text, what
# cannot be seen, and halves of characters. Joiners and variation selectors stay: they belong to
# the letters of some languages, and to emoji.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
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
    """Never show a text, nor its parts between colons; `name` is printed in their place."""
    for part in {secret, *secret.split(":")} - {""}:
        _names[repr(part)] = name
        for text in (part, str(PurePath(part)), repr(part)[1:-1], json.dumps(part)[1:-1]):
            if len(text) >= _SHORTEST:
                _names[text] = name


def masked(text: str) -> str:
    """Return the text without what is hidden and without passwords in URLs."""
    if _names:
        longest_first = sorted(_names, key=len, reverse=True)
        text = re.sub("|".join(map(re.escape, longest_first)), lambda m: _names[m[0]], text)
    return _LOGIN.sub("***", text)


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
