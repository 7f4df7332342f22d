"""Write docs/architectures.md: how every architecture that the tests make is read.

    python scripts/architectures_page.py

Takes a minute: each is made, tiny and random, and tried as it would be when it is loaded. A test
fails where the page is not what the tests hold.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # the tests also have a folder art_cli

from architectures import NAMES, chatml_tokenizer, make_architecture  # type: ignore # noqa: E402

from art_cli.errors import UsageError  # noqa: E402
from art_cli.models.policy import Policy  # noqa: E402

PAGE = ROOT / "docs" / "architectures.md"
MARK = "<!-- From here on the page is made by scripts/architectures_page.py. -->\n"
UPDATE = {
    "tree": "a tree, in one forward",
    "nodes": "a tree, node by node",
    "rows": "each sequence",
}
ENGINE = {"batch": "all rows at once", "row": "row by row", "anew": "each row anew for each token"}
KINDS = {
    "full attention": "full attention",
    "rope": "kinds of rope",
    "windows": "windows, chunks, sinks, soft caps",
    "experts": "mixtures of experts",
    "latent attention": "latent attention",
    "recurrent": "recurrent layers",
    "of old": "older ones",
    "wrapper": "multimodal, as text models",
}
Ways = tuple[str, str]


def table(found: dict[str, Ways | None]) -> str:
    """Return the page's tables: how architectures are read, by name; None: not supported."""
    lines = ["", "| layers | architectures | an update reads | the embedded engine reads |"]
    lines.append("|---|---|---|---|")
    for kind, names in NAMES.items():
        alike: dict[Ways, list[str]] = defaultdict(list)
        for name in names:
            if ways := found[name]:
                alike[ways].append(f"`{name}`")
        for (update, engine), some in alike.items():
            cells = (KINDS[kind], ", ".join(some), UPDATE[update], ENGINE[engine])
            lines.append(f"| {' | '.join(cells)} |")
    refused = [f"`{name}`" for names in NAMES.values() for name in names if found[name] is None]
    lines += ["", f"Refused, since what they were made for is shorter: {', '.join(refused)}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Try all architectures, and write the results."""
    found: dict[str, Ways | None] = {}
    for names in NAMES.values():
        for name in names:
            try:
                ways = Policy(make_architecture(name), chatml_tokenizer()).ways
                found[name] = ways.update, ways.engine
            except UsageError:
                found[name] = None
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + table(found))


if __name__ == "__main__":
    main()
