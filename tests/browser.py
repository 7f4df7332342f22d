"""A headless Chromium from the system's packages, told what to do over the DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "about:blank"),
)
PATIENCE = 300.0  # seconds for a condition to come true


class Tab:
    """One tab: what it asked for, what its console said."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, pid: int) -> None:
        self._socket = socket
        self.pid = pid  # of the browser; its processes are one session
        self._next = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            found = json.loads(message.data)
            params = found.get("params", {})
            if "id" in found:
                self._waiting.pop(found["id"]).set_result(found)
            elif found["method"] == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            elif found["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            elif found["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._next += 1
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._next] = future
        await self._socket.send_str(
            json.dumps({"id": self._next, "method": method, "params": params})
        )
        found = await asyncio.wait_for(future, 300)
        assert "error" not in found, (method, found["error"])
        return found["result"]

    async def run(self, script: str) -> Any:
        """Return the value of an expression; a promise is waited for."""
        found = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str, patience: float = PATIENCE) -> float:
        """Return after how many seconds an expression became true."""
        began = time.monotonic()
        while not await self.run(f"!!({script})"):
            assert time.monotonic() - began < patience, (script, self.errors)
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.getElementById('main')?.dataset.ready")

    async def go(self, hash_: str) -> str:
        """Go to a view of the page, and return all its text."""
        await self.run("delete document.getElementById('main').dataset.ready")
        await self.run(f"location.hash = {json.dumps(hash_)}")
        await self.until("document.getElementById('main').dataset.ready")
        return await self.text()

    async def text(self) -> str:
        return await self.run("document.body.innerText")

    async def look(self, width: int, height: int = 1000, *, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path) -> None:
        found = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """A fresh browser with one tab; nothing of it is left afterwards."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [CHROMIUM, f"--user-data-dir={folder}", *FLAGS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    pages = [p for p in await answer.json() if p["type"] == "page"]
                url = pages[0]["webSocketDebuggerUrl"]
                async with session.ws_connect(url, max_msg_size=0) as socket:
                    tab = Tab(socket, process.pid)
                    for domain in ("Page", "Network", "Runtime", "Log"):
                        await tab.send(f"{domain}.enable")
                    yield tab
                    await socket.close()
                    await tab.reader
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _port(file: Path) -> str:
    began = time.monotonic()
    while not file.exists() or not file.read_text().strip():
        assert time.monotonic() - began < 300, "chromium did not start"
        await asyncio.sleep(0.05)
    return file.read_text().split()[0]
