"""The page itself: its HTML frames, styles, scripts, and Plotly for the charts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from importlib import resources, util
from typing import Any

from art_cli.errors import PreflightError
from art_cli.system.files import strict_json
from art_cli.terminal.text import HIDDEN, masked
from art_cli.view import episode_html
from art_cli.view.episodes import COLUMNS
from art_cli.view.meanings import CURVES, FACTS
from art_cli.view.overview import X_AXES

SCRIPTS = (
    *("dom.js", "theme.js", "source.js", "state.js", "charts.js", "overview.js", "talk.js"),
    *("groups.js", "tokens.js", "before.js", "behaviour.js", "episodes.js", "main.js"),
)
EVALUATION_SCRIPTS = ("dom.js", "theme.js", "talk.js", "evaluation.js")
MISSING = "the page of a run needs plotly for its charts: pip install 'art-cli[view]'"
# Inline styles are allowed because Plotly sets them. Nothing else may be loaded, sent or framed.
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style} 'unsafe-inline'; "
    "connect-src {connect}; img-src data:; base-uri 'none'; form-action 'none'"
)


def has_charts() -> bool:
    """Return whether the extra `view` is installed."""
    return util.find_spec("plotly") is not None


@cache
def plotly() -> str:
    """Return Plotly's script. Raises PreflightError without the extra `view`."""
    if not has_charts():
        raise PreflightError(MISSING)
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


@cache
def asset(name: str) -> str:
    """Return the text of a file in `assets`."""
    return (resources.files("art_cli.view") / "assets" / name).read_text(encoding="utf-8")


def style() -> str:
    """Return the styles of all pages."""
    return episode_html.style() + asset("style.css")


@cache
def script(names: tuple[str, ...] = SCRIPTS) -> str:
    """Return the scripts of a page, joined into one with a scope of its own."""
    words = {"curves": CURVES, "facts": FACTS, "columns": COLUMNS, "axes": X_AXES, "hidden": HIDDEN}
    parts = "\n".join(asset(name) for name in names)
    return f"(function () {{ 'use strict';\nconst WORDS = {json.dumps(words)};\n{parts}\n}})();\n"


TEXTS = {  # resources of the live page, cacheable because their URLs contain a digest
    "style.css": ("text/css", style),
    "app.js": ("text/javascript", script),
    "plotly.js": ("text/javascript", plotly),
}


@cache
def live_page() -> str:
    """Return the live page, which requests its data from the server."""
    looks, app, charts = (f"{name}?{_digest(make())}" for name, (_, make) in TEXTS.items())
    return _page(
        "art view",
        f'<link rel="stylesheet" href="{looks}">',
        f'<script src="{app}" data-plotly="{charts}"></script>',
    )


def live_policy() -> str:
    """Return the Content-Security-Policy of the live page."""
    policy = POLICY.format(script="'self'", style="'self'", connect="'self'")
    return policy + "; frame-ancestors 'none'"


def whole_page(title: str, data: dict[str, Any]) -> str:
    """Return the page of runs as one file. Raises PreflightError without the extra `view`."""
    return _file("page.html", title, data, [script(), plotly()])  # the large one last: charts.js


def evaluation_page(title: str, body: str, data: dict[str, Any]) -> str:
    """Return the page of an evaluation as one file; `body` is markup."""
    return _file("evaluation.html", title, data, [script(EVALUATION_SCRIPTS)], body)


def _file(frame: str, title: str, data: dict[str, Any], scripts: list[str], body: str = "") -> str:
    """Return a self-contained file in which only these scripts can run."""
    scripts = [_harmless(text) for text in scripts]
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in scripts)
    policy = POLICY.format(script=hashes, style="", connect="'none'")
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style()}</style>'
    code = "".join(f"<script>{text}</script>" for text in scripts)
    block = f'<script type="application/json" id="data">{as_json(data)}</script>'
    return _page(title, head, block + code, frame, body)


def as_json(data: Any) -> str:
    """Return JSON that is safe inside a script element, with keys masked."""
    return masked(strict_json(data, (",", ":"))).replace("<", "\\u003c")


def _page(title: str, head: str, code: str, frame: str = "page.html", body: str = "") -> str:
    whole = {"TITLE": escape(title), "<!--HEAD-->": head, "<!--BODY-->": body, "<!--CODE-->": code}
    marks = re.compile("|".join(whole))  # at once: what is put in is not looked through
    return marks.sub(lambda mark: whole[mark[0]], asset(frame))


def _harmless(text: str) -> str:
    """Return a script that cannot close its script element."""
    return text.replace("</script", "<\\/script")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
