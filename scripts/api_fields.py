"""Write the table of all fields of a request into docs/agent-apis.md, which a test checks.

python scripts/api_fields.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from art_cli.rollout.gateway.apis.chat import ChatRequest
from art_cli.rollout.gateway.apis.completions import CompletionsRequest
from art_cli.rollout.gateway.apis.fields import REFUSED, UNUSED
from art_cli.rollout.gateway.apis.messages.api import MessagesRequest
from art_cli.rollout.gateway.apis.responses.api import ResponsesRequest

DOCS = Path(__file__).parents[1] / "docs" / "agent-apis.md"
HEAD = "| field | chat completions"


def table() -> str:
    """Return the table of docs/agent-apis.md."""
    models: dict[str, Any] = {
        "chat": ChatRequest,
        "responses": ResponsesRequest,
        "messages": MessagesRequest,
        "completions": CompletionsRequest,
    }
    names = {name for model in models.values() for name in model.model_fields}
    names |= {name for each in (*UNUSED.values(), *REFUSED.values()) for name in each}
    rows = [f"{HEAD} | responses | messages | completions |", "|---|---|---|---|---|"]
    for name in sorted(names):
        cells = [_cell(name, api, model.model_fields) for api, model in models.items()]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _cell(name: str, api: str, served: dict[str, Any]) -> str:
    if name in UNUSED[api]:
        return f"no effect: {UNUSED[api][name]}"
    if name in REFUSED[api]:
        return f"refused: {REFUSED[api][name]}"
    return "served" if name in served else ""


if __name__ == "__main__":
    text = DOCS.read_text(encoding="utf-8")
    DOCS.write_text(text.partition(HEAD)[0] + table(), encoding="utf-8")
