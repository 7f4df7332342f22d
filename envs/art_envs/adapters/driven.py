"""Adapter for a library that runs its own rollout: the policy takes the place of its model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


class DrivenRollout:
    """The library's rollout in a task of its own, and the conversation that it has with its model.

    The library calls `ask` in place of its model. The env calls the other methods.
    """

    def __init__(self, name: str) -> None:
        """Name the library's environment for error messages."""
        self._name = name
        self._asked: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._answer: asyncio.Future[Any] | None = None
        self._known: list[Any] = []  # messages of the conversation, up to the last answer
        self._task: asyncio.Task[Any] | None = None

    async def begin(self, rollout: Coroutine[Any, Any, Any]) -> list[Any]:
        """Start the rollout and return its first prompt."""
        self._task = asyncio.ensure_future(rollout)
        opening = await self._heard()
        if opening is None:
            raise RuntimeError(f"{self._name} ended before it asked its model")
        return opening

    async def ask(self, prompt: list[Any]) -> Any:
        """Return the policy's answer to a prompt."""
        self._answer = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(list(prompt))
        return await self._answer

    async def say(self, answer: Any) -> list[Any] | None:
        """Answer the prompt. Return the messages that follow, or None when the rollout is over."""
        assert self._answer
        self._known.append(None)  # the answer, which comes back in the library's own form
        self._answer.set_result(answer)
        return await self._heard()

    def cut_off(self, error: Exception) -> None:
        """Answer the pending prompt, if there is one, with an error that ends the rollout."""
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)

    async def result(self) -> Any:
        """Return the result of the rollout, or raise its exception."""
        assert self._task
        return await self._task

    async def close(self) -> None:
        """Cancel the rollout and wait for its cleanup."""
        if self._task:
            self._task.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await self._task

    async def _heard(self) -> list[Any] | None:
        assert self._task
        asked = asyncio.ensure_future(self._asked.get())
        await asyncio.wait({asked, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            self._task.result()  # raises the exception of the rollout
            return None
        prompt, num = asked.result(), len(self._known)
        pairs = zip(self._known, prompt, strict=False)
        if len(prompt) <= num or any(k and text_of(k) != text_of(p) for k, p in pairs):
            raise RuntimeError(f"{self._name} rewrites what was said; art cannot play that")
        self._known = prompt
        return prompt[num:]


def text_of(message: Any) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message.content
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [getattr(part, "text", None) or _text_in(part) for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _text_in(part: Any) -> str:
    return part.get("text", "") if isinstance(part, dict) else ""
