"""Client for the user's own server that speaks OpenAI's protocol, without litellm."""

from __future__ import annotations

from typing import Any

import httpx

from art_cli.config.sections.llm import LLMConfig
from art_cli.llms.answer import Answer, first_choice, read_body
from art_cli.llms.base import ChatMessage

KEPT = ("role", "content", "tool_calls")  # other fields are specific to this server


class ErrorAnswer(Exception):
    """An HTTP error response, or one whose body reports an error."""

    def __init__(self, response: httpx.Response, status: int) -> None:
        super().__init__(f"HTTP {status}: {response.text}")
        self.status_code = status
        self.response = response


class OpenAIServer:
    """A server that speaks OpenAI's protocol, at an address that the user gave."""

    def __init__(self, cfg: LLMConfig, base: str | None, key: str | None) -> None:
        self._url = f"{base}/chat/completions"
        self._params = {k: v for k, v in cfg.params.items() if k != "api_key"}
        is_here = httpx.URL(self._url).host in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.AsyncClient(
            timeout=cfg.timeout,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_keepalive_connections=cfg.concurrency),
            trust_env=not is_here,  # no proxy for servers on this machine
        )

    async def ask(self, model: str, messages: list[ChatMessage], asked: dict[str, Any]) -> Answer:
        """Send one request. `asked` holds its parameters other than the messages.

        Raises ErrorAnswer, BadAnswer, httpx.HTTPError.
        """
        body = {"model": model.removeprefix("openai/"), "messages": messages}
        settings = asked | self._params | {"tool_choice": asked.get("tool_choice")}
        body |= {k: v for k, v in settings.items() if v is not None}
        response = await self._client.post(self._url, json=body)
        if response.status_code != 200:
            raise ErrorAnswer(response, response.status_code)
        return read_response(response)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def read_response(response: httpx.Response) -> Answer:
    """Return the answer in a successful response. Raises ErrorAnswer, BadAnswer."""
    body = read_body(response.content)
    error = body.get("error")
    if error and not body.get("choices"):
        code = error.get("code") if isinstance(error, dict) else None
        raise ErrorAnswer(response, code if isinstance(code, int) and 400 <= code < 600 else 500)
    answer = first_choice(body)
    for key in [key for key in answer.message if key not in KEPT]:
        del answer.message[key]
    return answer
