"""A body as a pydantic model of one protocol."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from art_cli.rollout.gateway.asked import RequestError
from art_cli.system.outside import read_json

M = TypeVar("M", bound=BaseModel)

MAX_MISTAKES = 20  # that one answer names


def read_as(model: type[M], body: bytes) -> M:
    """Return the body as `model`. Raises RequestError, with the mistakes."""
    try:
        return model.model_validate(read_json(body))
    except ValidationError as e:
        mistakes = [
            f"{'.'.join(map(str, m['loc'])) or 'body'}: {m['msg']}"
            for m in e.errors()[:MAX_MISTAKES]
        ]
        raise RequestError(400, "; ".join(mistakes)) from None
    except ValueError as e:
        raise RequestError(400, f"the body is not JSON that can be used: {e}") from None
