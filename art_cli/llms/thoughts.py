"""Removal of a model's thinking from its answer, for servers that do not separate the two."""

from __future__ import annotations

import re

from art_cli.chat.output_format import THINKING

# Tags that prompts commonly ask for, in addition to those of chat templates.
_PROMPTED = ("thinking", "thought", "thoughts", "reasoning")
_PAIRS = (*THINKING, *((f"<{tag}>", f"</{tag}>") for tag in _PROMPTED))
_OPEN, _CLOSE = (f"(?:{'|'.join(map(re.escape, tags))})" for tags in zip(*_PAIRS, strict=True))
_THOUGHT = re.compile(rf"{_OPEN}(?:(?!{_OPEN}).)*?{_CLOSE}", re.DOTALL | re.IGNORECASE)
_BEGUN = re.compile(rf"(?:(?!{_OPEN}).)*?{_CLOSE}", re.DOTALL | re.IGNORECASE)
_UNFINISHED = re.compile(rf"\s*{_OPEN}", re.IGNORECASE)
# gpt-oss (Harmony) writes channels; only `final` is meant for the user.
_FINAL = re.compile(r"<\|channel\|>final\s*(?:<\|constrain\|>\w+\s*)?<\|message\|>", re.IGNORECASE)
_ASIDE = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b")
_END = re.compile(r"<\|(?:return|end)\|>\s*\Z")


def without_thoughts(text: str) -> str:
    """Return a model's answer without its thinking.

    There may be several thinking blocks. The opening tag of the first may be missing, because the
    prompt ended with it. An unclosed block at the start means that the answer was cut off.
    """
    if "<|channel|>" in text:
        said = _FINAL.split(text)
        if len(said) > 1:
            return _END.sub("", said[-1])
        return "" if _ASIDE.match(text) else text
    kept, num = _THOUGHT.subn("", text)
    if begun := _BEGUN.match(kept):
        kept, num = kept[begun.end() :], num + 1
    if _UNFINISHED.match(kept):
        return ""
    return kept.lstrip() if num else text
