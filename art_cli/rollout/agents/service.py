"""`agent.use: service`: an agent that runs as an HTTP service, on this machine or elsewhere.

    POST URL  {"id", "messages", "tools", "model", "base_url", "mcp_url", "api_key", "end_url",
               "deadline"}

The service plays the episode. It answers with 200 and the end (gateway/end.py), or with 202 and
later posts the end to `end_url`.

    GET URL?episode=ID    answered with 410 if the service accepted the episode and lost it
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import httpx

from art_cli.errors import AgentError, PreflightError
from art_cli.keys import mask_keys
from art_cli.rollout.agents.hosted import CrashError
from art_cli.rollout.gateway.asked import RequestError
from art_cli.rollout.gateway.end import AgentEnd
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.system.deadline import beside
from art_cli.types import Trajectory

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0  # seconds before the next attempt, doubling
KEEP_TRYING = 60.0  # seconds for a service to come back before the episode fails
CONNECT_TIMEOUT = 10.0  # seconds
CHECK_TIMEOUT = 10.0  # seconds for the service to answer the check
QUIET = 60.0  # seconds without a request of the agent before the service is asked about the episode
LOST = 410
BUSY = (429, 502, 503)  # the episode has not begun: the service is full or starting
REFUSED = (401, 403)
SHOWN = 500  # characters of an unexpected answer


class ServiceRunner:
    """Implements Runner."""

    def __init__(self, url: str, key_env: str | None, timeout: float) -> None:
        """`timeout` is an episode's, in seconds. Raises PreflightError if the key is not set."""
        self._url = url
        self._timeout = timeout
        headers = {}
        if key_env:
            if not (key := os.environ.get(key_env)):
                raise PreflightError(
                    f"agent.api_key_env: {key_env} is not set; put the key for the service into "
                    "the environment or into .env"
                )
            headers["Authorization"] = f"Bearer {key}"
        is_here = httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
        self._make = lambda: httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),
            # A kept-alive connection may close while an episode is posted. It would then be unknown
            # whether the episode had begun.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=not is_here,
        )
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Check with GET that the service runs: any answer but a failure is fine.

        Raises PreflightError.
        """
        self._client = self._make()
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                answer = await self._client.get(self._url, follow_redirects=False)
        except (httpx.HTTPError, TimeoutError) as e:
            why = _words(e) if isinstance(e, httpx.HTTPError) else f"not within {CHECK_TIMEOUT:g} s"
            raise PreflightError(
                f"agent.url: no service answers GET {self._url}: {why}; start it, or mend the "
                "address"
            ) from None
        if answer.status_code in REFUSED:
            raise PreflightError(f"agent.url: {self._refused(answer)}")
        if answer.status_code >= 500:
            raise PreflightError(
                f"agent.url: the service answers GET {self._url} with HTTP {answer.status_code}: "
                f"{mask_keys(answer.text)[:SHOWN]}"
            )

    async def close(self) -> None:
        """See Runner."""
        if self._client:
            await self._client.aclose()

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        """See Runner. Raises AgentError if the service is gone or refuses the key."""
        posting = asyncio.ensure_future(self._post(hosted, task_of(hosted, url, self._timeout)))
        try:
            await asyncio.wait({posting, hosted.told}, return_when=asyncio.FIRST_COMPLETED)
            if not hosted.told.done():
                answer = posting.result()
                if answer.status_code != 202:
                    await self._take(hosted, answer)
                hosted.waits_for = "it took the episode (HTTP 202) and has not posted its end"
            end = await self._posted(hosted)
        finally:
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)
        end.record(trajectory)
        if end.error is not None:
            raise CrashError(f"the service says: {mask_keys(end.error)[:SHOWN]}")
        return end.answer

    async def _post(self, hosted: Hosted, task: dict[str, Any]) -> httpx.Response:
        """Post an episode until the service accepts or refuses it. Return the response."""
        if not self._client:
            self._client = self._make()
        loop, wait = asyncio.get_running_loop(), FIRST_WAIT
        until = loop.time() + KEEP_TRYING
        while True:
            hosted.waits_for = f"{self._url} has not answered"
            try:
                answer = await self._client.post(self._url, json=task)
                if answer.status_code not in BUSY or hosted.num_calls:
                    return answer
                why = f"HTTP {answer.status_code}: {mask_keys(answer.text)[:SHOWN]}"
            except (httpx.ConnectError, httpx.ConnectTimeout) as e:
                why = _words(e)
            except httpx.HTTPError as e:
                raise AgentError(
                    f"the service {self._url} broke off after {hosted.num_calls} calls: {_words(e)}"
                ) from None
            hosted.waits_for = f"{self._url} cannot be reached ({why})"
            if loop.time() + wait > until:
                raise AgentError(
                    f"the service {self._url} did not take the episode within {KEEP_TRYING:g} s: "
                    f"{why}"
                )
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, LONGEST_WAIT)

    async def _posted(self, hosted: Hosted) -> AgentEnd:
        """Return the posted end. Raises AgentError if the service has lost the episode.

        After each `QUIET` seconds without a request of the agent, asks the service about it.
        """
        heard = -1
        while not (await asyncio.wait({hosted.told}, timeout=QUIET))[0]:
            if hosted.num_requests == heard and await self._has_lost(hosted):
                raise AgentError(
                    f"the service {self._url} took the episode (HTTP 202), and has lost it: asked "
                    "for it, it answers HTTP 410"
                )
            heard = hosted.num_requests
        return await asyncio.shield(hosted.told)

    async def _has_lost(self, hosted: Hosted) -> bool:
        assert self._client
        url = httpx.URL(self._url).copy_merge_params({"episode": hosted.id})
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                return (await self._client.get(url)).status_code == LOST
        except (httpx.HTTPError, TimeoutError):  # its workers may continue while it restarts
            return False

    async def _take(self, hosted: Hosted, answer: httpx.Response) -> None:
        """Accept the end in a response. Raises CrashError, AgentError."""
        if answer.status_code in REFUSED:
            raise AgentError(self._refused(answer))
        if answer.status_code != 200:
            raise CrashError(
                f"the service answered HTTP {answer.status_code}: {mask_keys(answer.text)[:SHOWN]}"
            )
        try:
            end = await beside(len(answer.content), AgentEnd.read, answer.content)
            hosted.tell(end)
        except RequestError as e:
            if not hosted.told.done():
                raise CrashError(f"the service's answer is no end of an episode: {e}") from None

    def _refused(self, answer: httpx.Response) -> str:
        return (
            f"the service {self._url} refuses the key (HTTP {answer.status_code}); "
            "agent.api_key_env names the variable that holds it"
        )


def task_of(hosted: Hosted, url: str, deadline: float) -> dict[str, Any]:
    """Return the description of an episode for an agent that is to play it."""
    return {
        "id": hosted.id,
        "messages": hosted.opening,
        "tools": hosted.tools,
        "model": "policy",
        "base_url": f"{url}/v1",
        "mcp_url": f"{url}/mcp",
        "end_url": f"{url}/end",
        "api_key": hosted.secrets.key,
        "deadline": deadline,  # seconds from now
    }


def _words(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
