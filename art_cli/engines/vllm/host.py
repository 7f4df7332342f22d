"""An engine host: it runs on a cluster node that only serves vLLM, for a run on another node.

    python -m art_cli.engines.vllm.host ADDRESS PORT

    GET    /about                 {gpus, missing}: number of GPUs, and why vLLM cannot run here
    POST   /folders               {name, files: {path: bytes}}: announces a folder of weights
    PUT    /folders/NAME/PATH     uploads one of its files
    POST   /folders/NAME          checks that it is complete -> {path}, its path on this node
    DELETE /folders/NAME
    POST   /servers               {options, gpus} -> {number}; starts a server
    GET    /servers/N?while=S     {state, ...}; waits for a while as long as the state is S
    GET    /servers/N/log?from=B  the server's output after byte B
    ...    /servers/N/vllm/...    forwarded to vLLM, which listens on this machine only
    DELETE /servers/N
    POST   /beat                  tells the host that the run is alive
    POST   /end

It listens on the node's own address and answers only requests with the run's token, because a
client can start programs here. It ends on /end, or after minutes without any request, so that an
unused node is not paid for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import aiohttp
import torch
from aiohttp import web
from aiohttp.typedefs import Handler

from art_cli.engines.base import TOKEN
from art_cli.engines.vllm import server as vllm_server
from art_cli.errors import EXIT_FAILED, EXIT_USAGE, ArtError, PreflightError
from art_cli.keys import register_environment
from art_cli.system.child_server import ChildServer
from art_cli.terminal.text import say

SILENCE = 300.0  # seconds without a request, after which the run counts as over
LONGEST_ANSWER = 20.0  # seconds that a request for a state change waits at most
IDLE = 60  # seconds until a silent connection gets a keepalive probe
MAX_BODY = 64 * 2**20  # bytes of a request to vLLM, such as the ids of a long prompt
CHUNK = 4 * 2**20  # bytes


class BadRequestError(ArtError):
    """A request that cannot be fulfilled. The message goes to the client."""


@dataclass(slots=True)
class _Replica:
    """One vLLM server, from its start on."""

    log: Path
    starting: asyncio.Task[ChildServer]

    @property
    def state(self) -> dict[str, Any]:
        """The state: starting, running, failed (with an error) or ended (with an exit code)."""
        if not self.starting.done():
            return {"state": "starting"}
        if self.starting.cancelled():
            return {"state": "failed", "error": "its start was cancelled"}
        if error := self.starting.exception():
            return {"state": "failed", "error": str(error) or repr(error)}
        server = self.starting.result()
        if server.runs:
            return {"state": "running"}
        return {"state": "ended", "exit_code": server.exit_code}

    async def close(self) -> None:
        """Stop the server, or cancel its start."""
        self.starting.cancel()
        await asyncio.wait([self.starting])
        if not self.starting.cancelled() and not self.starting.exception():
            await self.starting.result().close()


class Host:
    """The HTTP server of an engine host, for one run."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._heard = time.monotonic()
        self._over = asyncio.Event()
        self._numbers = itertools.count()
        self._replicas: dict[int, _Replica] = {}
        self._folders: dict[str, tuple[Path, dict[str, int]]] = {}
        self._disks: dict[str, Path] = {}  # our folder on each disk in use
        self._logs = self._on(tempfile.gettempdir())

    async def serve(self, address: str, port: int) -> bool:
        """Serve until the run is over. Return True if the run ended it, False after silence.

        Raises PreflightError if the address cannot be bound.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=10)
        listening = _listen(address, port)
        app = web.Application(client_max_size=MAX_BODY, middlewares=[self._checked])
        self._add_routes(app.router)
        # Requests that the run has dropped are cancelled at vLLM too.
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        # vLLM might close a kept connection just as it is reused.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=limit, connector=connector) as self._vllm:
            await runner.setup()
            await web.SockSite(runner, listening).start()
            try:
                return await self._until_over()
            finally:
                await asyncio.gather(*(r.close() for r in self._replicas.values()))
                await runner.cleanup()
                for folder in self._disks.values():
                    shutil.rmtree(folder, ignore_errors=True)

    async def _until_over(self) -> bool:
        while (left := self._heard + SILENCE - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), left)
                return True
        return False

    def _add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/about", self._about)
        router.add_post("/beat", self._beat)
        router.add_post("/end", self._end)
        router.add_post("/folders", self._begin_folder)
        router.add_put("/folders/{name}/{path:.+}", self._take_file)
        router.add_post("/folders/{name}", self._finish_folder)
        router.add_delete("/folders/{name}", self._drop_folder)
        router.add_post("/servers", self._start)
        router.add_get("/servers/{number}", self._state)
        router.add_get("/servers/{number}/log", self._log)
        router.add_delete("/servers/{number}", self._stop)
        router.add_route("*", "/servers/{number}/vllm/{path:.*}", self._pass_on)

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return _error(401, "wrong token: this engine host serves another run")
        self._heard = time.monotonic()
        try:
            return await handler(request)
        except BadRequestError as e:
            return _error(409, str(e))
        except OSError as e:  # such as a full disk
            return _error(507, f"{type(e).__name__}: {e}")

    async def _about(self, request: web.Request) -> web.Response:
        found = {"gpus": torch.cuda.device_count(), "missing": vllm_server.what_is_missing()}
        return web.json_response(found)

    async def _beat(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def _end(self, request: web.Request) -> web.Response:
        asyncio.get_running_loop().call_soon(self._over.set)
        return web.json_response({})

    # ------------------------------------------------------------ folders

    async def _begin_folder(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name, files = asked["name"], asked["files"]
        if name in self._folders:
            raise BadRequestError(f"the folder {name} exists already")
        for path in files:
            parts = PurePosixPath(path).parts
            if not parts or path != "/".join(parts) or ".." in parts or "\0" in path:
                raise BadRequestError(f"{path!r} is not a path inside a folder")
        size = sum(files.values())
        disk = vllm_server.quick_disk(size)
        if (free := shutil.disk_usage(disk).free) < size:
            raise BadRequestError(f"{disk} has {free} bytes free, and the folder has {size}")
        folder = Path(tempfile.mkdtemp(dir=self._on(disk)))
        self._folders[name] = folder, files
        return web.json_response({})

    async def _take_file(self, request: web.Request) -> web.Response:
        folder, files = self._folder(request)
        path = request.match_info["path"]
        if path not in files:
            raise BadRequestError(f"{path!r} was not announced")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            async for chunk in request.content.iter_any():
                file.write(chunk)  # about 100 KB, written faster than a thread starts
        return web.json_response({})

    async def _finish_folder(self, request: web.Request) -> web.Response:
        folder, files = self._folder(request)
        for path, size in files.items():
            came = (folder / path).stat().st_size if (folder / path).exists() else 0
            if came != size:
                raise BadRequestError(f"{path!r} has {came} of {size} bytes")
        return web.json_response({"path": str(folder)})

    async def _drop_folder(self, request: web.Request) -> web.Response:
        folder, _ = self._folder(request)
        del self._folders[request.match_info["name"]]
        await asyncio.to_thread(shutil.rmtree, folder)
        return web.json_response({})

    def _folder(self, request: web.Request) -> tuple[Path, dict[str, int]]:
        name = request.match_info["name"]
        if name not in self._folders:
            raise BadRequestError(f"there is no folder {name}")
        return self._folders[name]

    def _on(self, disk: str) -> Path:
        if disk not in self._disks:
            self._disks[disk] = vllm_server.scratch(disk)
        return self._disks[disk]

    # ------------------------------------------------------------ servers

    async def _start(self, request: web.Request) -> web.Response:
        asked, number = await request.json(), next(self._numbers)
        log = self._logs / f"{number}.log"
        log.touch()
        starting = asyncio.ensure_future(vllm_server.start(asked["options"], asked["gpus"], log))
        self._replicas[number] = _Replica(log, starting)
        return web.json_response({"number": number})

    async def _state(self, request: web.Request) -> web.Response:
        replica = self._replica(request)
        deadline = time.monotonic() + LONGEST_ANSWER
        while replica.state["state"] == request.query["while"] and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return web.json_response(replica.state)

    async def _log(self, request: web.Request) -> web.Response:
        with self._replica(request).log.open("rb") as file:
            file.seek(int(request.query["from"]))
            return web.Response(body=file.read(CHUNK))

    async def _stop(self, request: web.Request) -> web.Response:
        await self._replica(request).close()
        return web.json_response({})

    async def _pass_on(self, request: web.Request) -> web.Response:
        starting = self._replica(request).starting
        if not starting.done():
            raise BadRequestError("vLLM is starting")
        url = f"{starting.result().url}/{request.match_info['path']}"
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        try:
            async with self._vllm.request(
                request.method,
                url,
                params=request.query,
                data=await request.read(),
                headers=headers,
            ) as answer:
                body = await answer.read()
        except aiohttp.ClientError as e:
            return _error(502, f"vLLM is gone: {type(e).__name__}: {e}")
        return web.Response(body=body, status=answer.status, content_type=answer.content_type)

    def _replica(self, request: web.Request) -> _Replica:
        number = request.match_info["number"]
        if not number.isdecimal() or int(number) not in self._replicas:
            raise BadRequestError(f"there is no server {number}")
        return self._replicas[int(number)]


def _listen(address: str, port: int) -> socket.socket:
    """Return a listening socket with TCP keepalive.

    A turn may take longer than a firewall between nodes tracks a silent connection.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    try:
        listening.bind((address, port))
    except OSError as e:
        listening.close()
        raise PreflightError(f"the engine host cannot listen on {address}:{port}: {e}") from None
    return listening


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


def main() -> None:
    """Run an engine host at the address and port in the arguments, until the run is over."""
    address, port = sys.argv[1], int(sys.argv[2])
    register_environment()
    if not (token := os.environ.pop(TOKEN, "")):  # hide it from child processes
        say(f"error: {TOKEN} is missing: `art run --on` sets it", file=sys.stderr)
        sys.exit(EXIT_USAGE)

    async def serve() -> bool:
        return await Host(token).serve(address, port)

    try:
        told = asyncio.run(serve())
    except PreflightError as error:
        say(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if not told:
        say(f"error: no request from the run for {SILENCE:g} s: this node ends", file=sys.stderr)
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
