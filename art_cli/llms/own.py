"""A server of one's own that speaks OpenAI's protocol, asked without litellm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from art_cli.config.schema import LLMConfig
from art_cli.llms.base import ChatMessage, Reply, calls_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, and what it took."""

    message: ChatMessage  # in OpenAI's form
    finish: str | None
    tokens: tuple[int, int]  # read, written
    usd: float = 0.0  # as litellm knows it

    def reply(self, usd: float) -> Reply:
        """`usd` is what it cost."""
        return Reply(
            text=self.message.get("content") or "",
            cut=self.finish == "length",
            calls=calls_of(self.message),
            message=self.message,
            num_read=self.tokens[0],
            num_written=self.tokens[1],
            usd=usd,
        )


class Refused(Exception):
    """An answer that is an HTTP error."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"HTTP {response.status_code}: {response.text}")
        self.status_code = response.status_code
        self.response = response


class OwnServer:
    """A server that speaks OpenAI's protocol, at an address that the user gave."""

    def __init__(self, cfg: LLMConfig, base: str | None, key: str | None) -> None:
        self._url = f"{base}/chat/completions"
        self._params = {k: v for k, v in cfg.params.items() if k != "api_key"}
        is_here = httpx.URL(self._url).host in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.AsyncClient(
            timeout=cfg.timeout,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_keepalive_connections=cfg.concurrency),
            trust_env=not is_here,  # no proxy stands between this machine and itself
        )

    async def ask(self, model: str, messages: list[ChatMessage], asked: dict[str, Any]) -> Answer:
        """Ask once; `asked` is what a request holds beside the messages.

        Raises Refused, httpx.HTTPError, and what parsing an answer that is none raises.
        """
        body = {"model": model.removeprefix("openai/"), "messages": messages}
        settings = asked | self._params
        body |= {k: v for k, v in settings.items() if v is not None}
        response = await self._client.post(self._url, json=body)
        if response.status_code != 200:
            raise Refused(response)
        answer = response.json()
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        kept = ("role", "content", "tool_calls")  # the rest is of this server, and for the reader
        return Answer(
            message={k: v for k, v in choice["message"].items() if k in kept},
            finish=choice.get("finish_reason"),
            tokens=(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)),
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()
