"""What the page shows as an escape is what a terminal shows as one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from art_cli.terminal.text import HIDDEN, visible
from art_cli.view.frame import asset, script

SHOWS = """
const found = [];
for (let n = 0; n <= 0x10ffff; n++) {
  const text = String.fromCodePoint(n);
  const shown = clean(text);
  if (shown !== text) found.push([n, shown]);
}
console.log(JSON.stringify(found));
"""


def test_the_page_is_given_the_ranges_of_the_terminal() -> None:
    words = json.loads(script().split("const WORDS = ")[1].partition(";\n")[0])
    assert words["hidden"] == [list(ends) for ends in HIDDEN]


def test_the_page_and_a_terminal_show_the_same_characters_as_escapes() -> None:
    if not (node := shutil.which("node")):
        pytest.skip("there is no node")
    clean = asset("dom.js").partition("// el(")[0]
    code = f"const WORDS = {{hidden: {json.dumps(HIDDEN)}}};\n{clean}\n{SHOWS}"
    done = subprocess.run([node, "-"], input=code, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    page = dict(json.loads(done.stdout))
    every = map(chr, range(sys.maxunicode + 1))
    terminal = {ord(c): shown for c in every if (shown := visible(c)) != c}
    assert page.keys() == terminal.keys()
    short = {0x8, 0xC, 0xD}  # JSON writes them \\b, \\f and \\r
    assert {n: t for n, t in page.items() if n not in short} == {
        n: t for n, t in terminal.items() if n not in short
    }
