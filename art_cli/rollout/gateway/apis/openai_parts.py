"""The parts of answers that OpenAI's protocols share."""

from __future__ import annotations

from typing import Any

from art_cli.rollout.gateway.asked import Answered, RequestError

PIECE = 24  # characters of a streamed piece


def error_body(error: RequestError) -> dict[str, Any]:
    """Return the body of an error response in OpenAI's form."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "code": error.code, "param": None}}


def token_logprobs(answer: Answered) -> list[dict[str, Any]]:
    """Return the log-probability of each sampled token, as used in training."""
    likeliest = answer.likeliest or [{} for _ in answer.tokens]
    return [
        _token(token, p) | {"top_logprobs": [_token(*pair) for pair in others.items()]}
        for token, p, others in zip(
            answer.tokens, answer.completion.logprobs, likeliest, strict=True
        )
    ]


def usage(answers: list[Answered]) -> dict[str, int]:
    """Return the number of tokens in the prompt and in all answers."""
    sampled = sum(a.num_sampled for a in answers)
    read = answers[0].num_prompt
    return {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}


def pieces(text: str) -> list[str]:
    """Split a text into the pieces of a stream."""
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
