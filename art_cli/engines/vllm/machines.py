"""Machines that run vLLM servers, and transfer of weights: this machine, or a serving node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
import httpx
import torch

from art_cli.config.sections.engine import EngineConfig
from art_cli.engines.base import HOSTS, TOKEN
from art_cli.engines.vllm import server as vllm_server
from art_cli.engines.vllm.host import CHUNK, LONGEST_ANSWER
from art_cli.errors import EngineError, PreflightError
from art_cli.keys import KeyFilter
from art_cli.system.child_server import ChildServer

JOIN_TIMEOUT = 600.0  # seconds until a node must answer; it is set up in parallel with ours
ASK_TIMEOUT = 60.0  # seconds per request to a host
SEND_TIMEOUT = 3600.0  # seconds per file


class Started(Protocol):
    """A vLLM server on any machine."""

    url: str

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the server runs as far as is known."""
        ...

    async def ends_within(self, seconds: float) -> bool:
        """Return whether the server ends within this time. Raises EngineError."""
        ...

    async def close(self) -> None:
        """Stop the server."""
        ...


class Machine(Protocol):
    """A machine that runs vLLM servers."""

    headers: dict[str, str]  # for requests to its servers

    async def put(self, folder: Path) -> None:
        """Copy a local folder to the machine. Raises EngineError."""
        ...

    def path(self, folder: Path) -> str:
        """Return the path of a folder on the machine. If it was not copied, its path is kept."""
        ...

    async def drop(self, folder: Path) -> None:
        """Remove a copied folder that no server needs any more. Raises EngineError."""
        ...

    async def start(self, options: dict[str, Any], gpus: list[int], log: Path) -> Started:
        """Start a server that logs to the local file `log`. Raises PreflightError."""
        ...


class LocalMachine:
    """This machine."""

    headers: dict[str, str] = {}  # noqa: RUF012 (never changed)

    async def put(self, folder: Path) -> None:
        """See `Machine`. Nothing to copy."""

    def path(self, folder: Path) -> str:
        return str(folder)

    async def drop(self, folder: Path) -> None:
        """See `Machine`. Does nothing: the folder's writer removes it."""

    async def start(self, options: dict[str, Any], gpus: list[int], log: Path) -> ChildServer:
        return await vllm_server.start(options, gpus, log)


class RemoteMachine:
    """A node with an engine host (host.py)."""

    def __init__(self, url: str, token: str) -> None:
        self.headers = {"Authorization": f"Bearer {token}"}
        self.name = f"the engine's node {httpx.URL(url).host}"
        self.url = url
        self._folders: dict[Path, tuple[str, str]] = {}  # (name, path) on the node, by local folder
        self._started: set[_RemoteServer] = set()

    async def put(self, folder: Path) -> None:
        """See `Machine`. Also fetches new log output of the node's servers."""
        name = f"{folder.name}-{secrets.token_hex(8)}"
        files = {file.relative_to(folder).as_posix(): file for file in _files(folder)}
        sizes = {path: file.stat().st_size for path, file in files.items()}
        await self.ask("POST", "/folders", json={"name": name, "files": sizes})
        for path, file in files.items():
            await self.ask(
                "PUT",
                f"/folders/{name}/{quote(path)}",
                timeout=SEND_TIMEOUT,
                data=_content(file),
                headers={"Content-Length": str(sizes[path])},
            )
        where = await self.ask("POST", f"/folders/{name}")
        self._folders[folder] = name, where["path"]
        for server in tuple(self._started):
            await server.bring_log()

    def path(self, folder: Path) -> str:
        return self._folders[folder][1] if folder in self._folders else str(folder)

    async def drop(self, folder: Path) -> None:
        name, _ = self._folders.pop(folder)
        await self.ask("DELETE", f"/folders/{name}")

    async def start(self, options: dict[str, Any], gpus: list[int], log: Path) -> Started:
        asked = {"options": options, "gpus": gpus}
        number = (await self.ask("POST", "/servers", json=asked))["number"]
        server = _RemoteServer(self, number, log)
        self._started.add(server)
        try:
            deadline = time.monotonic() + vllm_server.START_TIMEOUT + ASK_TIMEOUT
            while (found := await server.state("starting"))["state"] == "starting":
                if time.monotonic() > deadline:
                    raise PreflightError(f"{self.name} does not report that vLLM has started")
            if found["state"] != "running":
                raise PreflightError(f"{self.name}: {found.get('error', found)}")
        except BaseException:
            await server.close()
            raise
        return server

    def forget(self, server: _RemoteServer) -> None:
        """Forget a server that has been closed."""
        self._started.discard(server)

    async def ask(
        self, method: str, path: str, *, timeout: float = ASK_TIMEOUT, **more: Any
    ) -> Any:
        """Return the host's response. Raises EngineError."""
        limit = aiohttp.ClientTimeout(total=timeout)
        headers = self.headers | more.pop("headers", {})
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as client,
                client.request(method, self.url + path, headers=headers, **more) as response,
            ):
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as e:
            raise EngineError(f"{self.name} does not answer {method} {path}: {e!r}") from None
        if response.status >= 400:
            raise EngineError(f"{self.name}: {_message(body)}")
        return json.loads(body) if response.content_type == "application/json" else body


class _RemoteServer:
    """A vLLM server on another node."""

    def __init__(self, place: RemoteMachine, number: int, log: Path) -> None:
        self._place = place
        self._path = f"/servers/{number}"
        self._log = log
        self._brought = 0  # bytes of its log that were fetched
        self._keys = KeyFilter()
        self.url = f"{place.url}{self._path}/vllm"
        self.exit_code: int | None = None

    async def state(self, known: str) -> dict[str, Any]:
        """Return the server's state; wait for a while as long as it is `known`."""
        waits = LONGEST_ANSWER + ASK_TIMEOUT
        return await self._place.ask("GET", f"{self._path}?while={known}", timeout=waits)

    async def ends_within(self, seconds: float) -> bool:
        """See `Started`. After the end, the local log has all of the server's output."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                left = deadline - time.monotonic()
                found = await asyncio.wait_for(self.state("running"), left)
                if found["state"] != "running":
                    self.exit_code = found.get("exit_code")
                    await self.bring_log()
                    return True
        return False

    async def close(self) -> None:
        """See `Started`. If the host is gone, its servers are gone too."""
        with contextlib.suppress(EngineError):
            await self._place.ask("DELETE", self._path)
            await self.bring_log()
        with self._log.open("ab") as file:
            file.write(self._keys.rest())
        self._place.forget(self)

    async def bring_log(self) -> None:
        """Append new output of the server to its local log."""
        while True:
            new = await self._place.ask("GET", f"{self._path}/log?from={self._brought}")
            if not new:
                return
            with self._log.open("ab") as file:
                file.write(self._keys.next(new))
            self._brought += len(new)


def placements(cfg: EngineConfig) -> list[tuple[Machine, list[int]]]:
    """Return the machine and GPU numbers of each replica."""
    each = range(cfg.tensor_parallel_size)
    if cfg.nodes:
        per_node = range(cfg.replicas // cfg.nodes)
        return [
            (place, [i * cfg.tensor_parallel_size + gpu for gpu in each])
            for place in _nodes(cfg)
            for i in per_node
        ]
    here = LocalMachine()
    gpus = cfg.gpus or ([torch.cuda.current_device()] if torch.cuda.is_available() else [])
    starts = (i * cfg.tensor_parallel_size for i in range(cfg.replicas))
    return [(here, gpus[at : at + cfg.tensor_parallel_size]) for at in starts]


def on_one_machine(cfg: EngineConfig) -> EngineConfig:
    """Return the settings to play a finished run on one machine.

    The nodes that served the run are gone. One replica is enough: on the policy's GPU or, if the
    model is split, on the GPUs after that.
    """
    if not cfg.nodes:
        return cfg
    behind = list(range(1, cfg.tensor_parallel_size + 1))
    return replace(cfg, nodes=0, replicas=1, gpus=behind if cfg.tensor_parallel_size > 1 else None)


def check_nodes(cfg: EngineConfig) -> None:
    """Wait until the serving nodes answer.

    Raises PreflightError if a node does not answer, or lacks GPUs or vLLM.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT
    wanted = cfg.replicas // cfg.nodes * cfg.tensor_parallel_size
    for place in _nodes(cfg):
        found = _about(place, deadline)
        if found["missing"]:
            raise PreflightError(f"{place.name}: {found['missing']}")
        if 0 < found["gpus"] < wanted:
            raise PreflightError(
                f"{place.name} has {found['gpus']} GPUs, but {wanted} are needed on each: "
                f"engine.replicas ({cfg.replicas}) / engine.nodes ({cfg.nodes}) x "
                f"engine.tensor_parallel_size ({cfg.tensor_parallel_size})"
            )


def _about(place: RemoteMachine, deadline: float) -> dict[str, Any]:
    while True:
        try:
            answer = httpx.get(f"{place.url}/about", headers=place.headers, trust_env=False)
        except httpx.HTTPError as e:
            if time.monotonic() > deadline:
                raise PreflightError(
                    f"{place.name} did not answer within {JOIN_TIMEOUT:g} s: {e!r}"
                ) from None
            time.sleep(0.5)
            continue
        if answer.status_code >= 400:
            raise PreflightError(f"{place.name}: {_message(answer.content)}")
        return answer.json()


def _nodes(cfg: EngineConfig) -> list[RemoteMachine]:
    urls, token = os.environ.get(HOSTS, "").split(), os.environ.get(TOKEN, "")
    if len(urls) != cfg.nodes:
        raise PreflightError(
            f"engine.nodes is {cfg.nodes}, but this process is not one of a run on a cluster with "
            f"nodes that serve ({len(urls)} are known); send it to one: art run CONFIG --on NAME"
        )
    return [RemoteMachine(url, token) for url in urls]


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder, without hidden ones."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return [p for p in found if not any(x.startswith(".") for x in p.relative_to(folder).parts)]


async def _content(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while chunk := await asyncio.to_thread(opened.read, CHUNK):
            yield chunk


def _message(body: bytes) -> str:
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return body[:1000].decode(errors="replace")
