"""Count sentences that a reader has to turn around: they begin with What or Who, or ask.

    python scripts/english.py              their shares in docstrings and in the docs
    python scripts/english.py --list       and where each is
    python scripts/english.py --sample 50  random texts of all kinds, to be read by a stranger

A noun or a verb in front says at once what a thing is: "Deadlines of calls into user code", not
"What a call into user code may take". A test holds the shares.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TURNED = re.compile(r"(What|Whatever|Who|Whoever|Whom|Whose|Which|How|Whether)\b")
NO_NOUN = re.compile(r"(Where|When|Why|That)\b")  # as a docstring: it says no noun
ASKS = re.compile(r"^[^.:]*\?")
LIMITS = {"module": 0.01, "function": 0.006, "docs": 0.002}  # shares, as in well-kept projects


def is_turned(sentence: str, kind: str) -> bool:
    """Return whether a sentence begins with a question word, or is a question."""
    words = kind != "docs" and NO_NOUN.match(sentence)
    return bool(words or TURNED.match(sentence) or ASKS.match(sentence))


def docstrings(kind: str) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the first line of each docstring of modules, or of functions."""
    for folder in ("art_cli", "envs", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            nodes: list[ast.AST] = [tree]
            if kind == "function":
                nodes = [
                    n
                    for n in ast.walk(tree)
                    if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                ]
            for node in nodes:
                text = ast.get_docstring(node)  # type: ignore[arg-type]
                if text:
                    line = getattr(node, "lineno", 1)
                    yield f"{path.relative_to(ROOT)}:{line}", text.split("\n\n")[0]


def sentences() -> Iterator[tuple[str, str]]:
    """Yield `file:line` and each sentence of the pages that is prose: no table, heading or code."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in pages:
        is_code, paragraph, begin = False, "", 0
        for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
            if line.startswith("```"):
                is_code = not is_code
            prose = line and not is_code and not line.startswith(("|", "#", "    ", "```", "<"))
            if prose:
                begin = begin or number
                paragraph += " " + re.sub(r"^\s*([-*]|\d+\.) ", "", line)
            starts_item = re.match(r"\s*([-*]|\d+\.) ", line or "")
            if (not prose or starts_item) and paragraph:
                for sentence in re.split(r"(?<=[.!?]) +", paragraph.strip()):
                    yield f"{path.relative_to(ROOT)}:{begin}", sentence
                paragraph, begin = "", 0


def comments() -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of each comment of whole lines."""
    for path in sorted((ROOT / "art_cli").rglob("*.py")):
        block, begin = "", 0
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            words = line.strip()
            if words.startswith("# "):
                begin, block = begin or number, f"{block} {words[2:]}"
            elif block:
                yield f"{path.relative_to(ROOT)}:{begin}", f"#{block}  ->  {words}"
                block, begin = "", 0


def messages() -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the source of each error that is raised with words."""
    for path in sorted((ROOT / "art_cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                words = ast.unparse(node.exc)
                if words.count(" ") > 3:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", words


KINDS = {
    "module": lambda: docstrings("module"),
    "function": lambda: docstrings("function"),
    "docs": sentences,
}


def main() -> None:
    """Print the shares, and where the sentences are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print each sentence with its place")
    parser.add_argument("--sample", type=int, help="print so many texts, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.sample:
        kinds = KINDS | {"comment": comments, "message": messages}
        texts = [(kind, *each) for kind, found in kinds.items() for each in found()]
        for kind, place, text in random.Random(args.seed).sample(texts, args.sample):
            print(f"{kind}  {place}\n    {' '.join(text.split())}\n")
        return
    for kind, found in KINDS.items():
        everything = list(found())
        turned = [(place, text) for place, text in everything if is_turned(text, kind)]
        share = len(turned) / len(everything)
        counts = f"{len(turned)} of {len(everything)}, {share:.1%}"
        print(f"{kind}: {counts} (at most {LIMITS[kind]:.1%})")
        for place, text in turned if args.list else ():
            print(f"  {place}: {' '.join(text.split())[:160]}")


if __name__ == "__main__":
    main()
