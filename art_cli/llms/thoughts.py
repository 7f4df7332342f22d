"""What a model thinks into its answer, where its server does not keep that apart."""

from __future__ import annotations

import re

# Of Qwen, DeepSeek, GLM and others; of prompts that ask for thoughts; of Seed; of Magistral.
_TAGS = r"(?:think|thinking|thought|thoughts|reasoning|seed:think)"
_OPEN, _CLOSE = rf"(?:<{_TAGS}>|\[THINK\])", rf"(?:</{_TAGS}>|\[/THINK\])"
_THOUGHT = re.compile(rf"{_OPEN}(?:(?!{_OPEN}).)*?{_CLOSE}", re.DOTALL | re.IGNORECASE)
_BEGUN = re.compile(rf"(?:(?!{_OPEN}).)*?{_CLOSE}", re.DOTALL | re.IGNORECASE)
_UNFINISHED = re.compile(rf"\s*{_OPEN}", re.IGNORECASE)
# gpt-oss (harmony): channels, of which only the last is said.
_FINAL = re.compile(r"<\|channel\|>final\s*(?:<\|constrain\|>\w+\s*)?<\|message\|>", re.IGNORECASE)
_ASIDE = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b")
_END = re.compile(r"<\|(?:return|end)\|>\s*\Z")


def without_thoughts(text: str) -> str:
    """Return what is said in a model's answer, without what it thought.

    Thoughts stand between tags, once or several times; the first may have been begun in the prompt,
    and the last may have been cut off.
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
