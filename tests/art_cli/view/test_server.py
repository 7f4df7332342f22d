"""The page on loopback: who is answered, and with which headers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from shown_runs import add_step, make_run

from art_cli.errors import PreflightError
from art_cli.view.collection import Collection
from art_cli.view.server import listen, serve

pytest.importorskip("plotly", reason="the extra view is not installed")


@asynccontextmanager
async def served(*paths: Path) -> AsyncIterator[str]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    collection = Collection(paths)
    for run in collection.runs():
        run.judge()  # what is found out behind the page is news, too
    task = asyncio.create_task(serve(collection, listen(0), told.set_result))
    yield await asyncio.wait_for(told, 300)
    task.cancel()
    await asyncio.wait([task])


async def get(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text(), dict(answer.headers)


def test_only_who_knows_the_secret_and_calls_it_loopback_is_answered(tmp_path: Path) -> None:
    async def play() -> None:
        async with served(make_run(tmp_path / "p" / "r")) as url:
            root = url.rpartition("/")[0].rpartition("/")[0]
            assert url.startswith("http://127.0.0.1:") and len(url) > 50
            status, text, headers = await get(url)
            assert status == 200 and "<main" in text
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "script-src 'self';" in policy
            assert "unsafe-eval" not in policy and headers["Cache-Control"] == "no-store"
            for wrong in (f"{root}/", f"{root}/x/", f"{root}/{'x' * 32}/data", f"{root}/data"):
                status, text, _ = await get(wrong)
                assert status == 404 and "p/r" not in text
            status, text, _ = await get(f"{url}data", Host="evil.example")
            assert status == 403 and "p/r" not in text
            assert (await get(f"{url}../../etc/passwd"))[0] == 404

    asyncio.run(play())


def test_scripts_are_kept_by_the_browser_and_charts_load_on_demand(tmp_path: Path) -> None:
    async def play() -> None:
        async with served(make_run(tmp_path / "p" / "r")) as url:
            page = (await get(url))[1]
            assert '<script src="plotly' not in page
            for address in re.findall(r'"((?:style|app|plotly)\.[^"]+)"', page):
                assert re.fullmatch(r"\w+\.\w+\?[0-9a-f]{16}", address)
                status, text, headers = await get(url + address)
                assert status == 200 and "immutable" in headers["Cache-Control"]
                assert headers["Content-Encoding"] == "gzip"
                assert text == (await get(url + address, **{"Accept-Encoding": "identity"}))[1]

    asyncio.run(play())


def test_it_says_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")

    async def play() -> None:
        async with served(root) as url, aiohttp.ClientSession() as session:
            async with session.get(f"{url}data") as answer:
                stamp = (await answer.json())["stamp"]
            assert (await get(f"{url}data?seen={stamp}"))[0] == 204
            add_step(root, 5)
            async with session.get(f"{url}data?seen={stamp}") as answer:
                assert (await answer.json())["runs"][0]["step"] == 5
            async with session.get(f"{url}group?run=p/r&split=train&step=5&group=0") as answer:
                assert len((await answer.json())["episodes"]) == 10

    asyncio.run(play())


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    async def play() -> None:
        async with served(make_run(tmp_path / "p" / "r")) as url:
            for asked in (
                "group?run=x&split=train&step=1&group=0",
                "group?run=p/r&split=a&step=1&group=0",
            ):
                status, text, _ = await get(url + asked)
                assert status == 404 and "error" in text
            for asked in ("group?run=p/r&split=train&step=x&group=0", "index", "search?run=p/r"):
                assert (await get(url + asked))[0] == 400

    asyncio.run(play())


def test_a_port_that_is_taken_is_said() -> None:
    with listen(0) as taken, pytest.raises(PreflightError, match="is taken; give another"):
        listen(taken.getsockname()[1])
