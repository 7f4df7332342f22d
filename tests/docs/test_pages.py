"""README and docs name what there is: pages, folders, commands, settings, messages."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from docs.pages import PAGES, ROOT, commands

from art_cli.cli.main import app
from art_cli.training.algorithm.loss import LOSSES

IMPORT = "import config_reference as c"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    plain = re.sub(r"```.*?```", "", text, flags=re.S)
    titles = re.findall(r"^#+ (.+)$", plain, re.M)
    return {re.sub(r"[^\w -]", "", t.lower()).strip().replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (
            anchor and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            wrong.append(link)
    assert wrong == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page not in PAGES:
            continue
        seen.add(page)
        folder = Path(page).parent
        links = re.findall(r"\]\(([^)#\s]+\.md)", PAGES[page])
        todo += [(ROOT / folder / link).resolve().relative_to(ROOT).as_posix() for link in links]
    assert set(PAGES) - seen == {"CHANGELOG.md"}


def test_the_readme_is_two_screens() -> None:
    assert PAGES["README.md"].count("\n") <= 160


def test_the_tree_of_the_readme_names_every_room() -> None:
    tree = PAGES["README.md"].partition("## What is where")[2]
    named = set(re.findall(r"[\w.]+/?", tree))
    there = {
        path.name + "/" * path.is_dir()
        for path in (ROOT / "art_cli").iterdir()
        if path.name[0] not in "_." and path.name != "py.typed"
    }
    assert there - named == set()


def test_the_page_of_losses_has_each_with_its_clip() -> None:
    table = PAGES["docs/losses.md"].partition("## ")[0]
    clips = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", table, re.M))
    known = {name: f"{loss.clip_low:g}, {loss.clip_high:g}" for name, loss in LOSSES.items()}
    assert clips == known | {"cispo": "5, from above"}


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_that_is_shown_exists(page: str, line: str) -> None:
    words = shlex.split(line.partition("  ")[0].partition(" #")[0])[1:]
    command: Any = typer.main.get_command(app)
    context = typer.Context(command)
    while hasattr(command, "commands") and words:
        _, command, words = command.resolve_command(context, words)
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    flags = {w.partition("=")[0] for w in words if w.startswith("-")}
    assert flags <= known, line


def texts() -> Iterator[str]:
    """Yield every text in the source, `...` in place of what is put into it."""
    for path in (ROOT / "art_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "..." for p in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_messages_of_the_troubleshooting_page_are_the_programs() -> None:
    page = PAGES["docs/troubleshooting.md"].partition("## The config")[2]
    shown = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert len(shown) > 25
    known = list(texts())
    parts = {part.strip() for message in shown for part in message.split("...")} - {""}
    assert {p for p in parts if not any(p in text for text in known)} == set()


def test_the_config_page_is_what_its_script_writes() -> None:
    made = subprocess.run(
        [sys.executable, "-c", f"{IMPORT}; print(c.MARK + chr(10) + c.reference())"],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    assert PAGES["docs/config.md"].endswith(made.stdout.rstrip("\n") + "\n")
