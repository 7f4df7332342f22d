"""A refusal as OpenAI's clients read it."""

from __future__ import annotations

from typing import Any

from art_cli.rollout.gateway.asked import RequestError


def error_body(error: RequestError) -> dict[str, Any]:
    """Return the body of a refusal."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "code": error.code, "param": None}}
