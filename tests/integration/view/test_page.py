"""The page in a real browser: every view, live and as a file, and what may not happen there."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Tab, browser
from loopback_judge import Answer, Ask, LoopbackJudge
from quiz import Player, Quiz
from shown_runs import PAYLOAD, add_step, make_hostile, make_run
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.view.collection import Collection
from art_cli.view.file import page_of
from art_cli.view.server import listen, serve

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install chromium"
)
pytest.importorskip("plotly", reason="the extra view is not installed")
PATIENCE = 30.0  # seconds, on a busy machine; what it really took is printed
VIEWS = {  # address -> a word that the view shows
    "#/overview/p%2Fr": "Held-out reward",
    "#/groups/p%2Fr": "with most to learn first",
    "#/group/p%2Fr/train/1/0": "advantage",
    "#/tokens/p%2Fr/train/1/0/1": "trained on",
    "#/tokens/p%2Fr": "trained on",
    "#/before/p%2Fr": "Got better",
    "#/compare/p%2Fr/val/val-3": "step 0 (untrained)",
    "#/behaviour/p%2Fr": "First moves",
    "#/episodes/p%2Fr": "episodes, mean reward",
}


@asynccontextmanager
async def served(*paths: Path) -> AsyncIterator[str]:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(Collection(paths), listen(0), told.set_result))
    yield await asyncio.wait_for(told, 300)
    task.cancel()
    await asyncio.wait([task])


def play(part: Callable[[Tab], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with browser() as tab:
            await part(tab)
            assert tab.errors == []
            stray = [
                u for u in tab.requests if not u.startswith(("http://127.0.0.1:", "file:", "data:"))
            ]
            assert stray == []

    asyncio.run(whole())


async def see_all(tab: Tab, url: str) -> None:
    await tab.open(url)
    for address, word in VIEWS.items():
        text = await tab.go(address)
        assert word.lower() in text.lower(), (address, text[:500])
        assert await tab.run("document.querySelectorAll('[role=alert]').length") == 0


@pytest.mark.parametrize("is_live", [True, False])
def test_every_view_is_reached_and_nothing_leaves_loopback(tmp_path: Path, is_live: bool) -> None:
    root = make_run(tmp_path / "p" / "r")

    async def look(tab: Tab) -> None:
        if not is_live:
            file = tmp_path / "page.html"
            file.write_text(page_of(Collection([root])))
            return await see_all(tab, file.as_uri())
        async with served(root) as url:
            await see_all(tab, url)

    play(look)


@pytest.mark.parametrize("is_live", [True, False])
def test_no_script_of_a_transcript_runs(tmp_path: Path, is_live: bool) -> None:
    root = make_hostile(tmp_path / "p" / "<img src=x onerror=window.hurt=1>")
    key = "p%2F%3Cimg%20src%3Dx%20onerror%3Dwindow.hurt%3D1%3E"
    views = [address.replace("p%2Fr", key) for address in VIEWS]
    views += [f"#/group/{key}/train/3/0", f"#/tokens/{key}/train/3/0/0", f"#/compare/{key}/val/x"]
    views += [f"#/overview/{key}?metric=x/{PAYLOAD}", f"#/<img src=x onerror=window.hurt=1>/{key}"]

    async def look(tab: Tab) -> None:
        async def see(url: str) -> None:
            await tab.open(url)
            for address in views:
                await tab.go(address)
                assert await tab.run("window.hurt") is None, address
                assert await tab.run("document.querySelectorAll('main img').length") == 0, address
            text = await tab.go(f"#/group/{key}/train/3/0")
            assert PAYLOAD in text.replace("\n", "")  # it is shown, as what it is
            await tab.run(
                "document.body.append(Object.assign(document.createElement('div'),"
                "{innerHTML: '<img src=data:, onerror=window.hurt=1>'}))"
            )
            await asyncio.sleep(0.3)
            assert await tab.run("window.hurt") is None  # the policy stops even what got in
            tab.errors = [e for e in tab.errors if "Content Security Policy" not in e]

        if not is_live:
            file = tmp_path / "page.html"
            file.write_text(page_of(Collection([root])))
            return await see(file.as_uri())
        async with served(root) as url:
            await see(url)

    play(look)


def test_ten_thousand_trajectories_stay_fluent(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r", steps=100, groups=10, size=10)

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            began = time.monotonic()
            await tab.open(url)
            took = {"open": time.monotonic() - began}
            await tab.until("document.querySelector('.plot .main-svg')")
            took["charts"] = time.monotonic() - began
            for address in VIEWS:
                began = time.monotonic()
                await tab.go(address)
                took[address] = time.monotonic() - began
            began = time.monotonic()
            await tab.run(
                "document.querySelector('[aria-label=Only]').value = 'errors';"
                "document.querySelector('[aria-label=Only]').dispatchEvent(new Event('change'))"
            )
            took["filter"] = time.monotonic() - began
            await tab.until("document.body.innerText.includes('of 10,040 episodes')")
            await tab.run("document.getElementById('search').value = 'order W3.'")
            began = time.monotonic()
            await tab.run("document.querySelector('form').requestSubmit()")
            await tab.until(
                "document.querySelector('[role=status]:not(#live)').innerText.includes('of 10,040')"
            )
            took["search"] = time.monotonic() - began
            print({k: round(v, 2) for k, v in took.items()})
            assert max(took.values()) < PATIENCE

    play(look)


def test_a_run_that_goes_on_shows_its_next_step_within_two_seconds(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    (root / "status.json").write_text(
        json.dumps(
            {"state": "running", "step": 4, "steps": 9, "pid": 1, "updated": "", "message": ""}
        )
    )

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            await tab.open(url)
            await tab.go("#/episodes/p%2Fr")
            await asyncio.to_thread(add_step, root, 5)
            took = await tab.until("document.body.innerText.includes('train 5 train-')")
            await tab.go("#/overview/p%2Fr")
            await tab.until("document.querySelector('.plot .main-svg')")
            await asyncio.to_thread(add_step, root, 6)
            chart = "document.querySelectorAll('.plot')[1]"  # drawn once it is scrolled to
            shown = f"{chart}.scrollIntoView() || {chart}.data?.[0].x.includes(6)"
            assert max(took, await tab.until(shown)) < PATIENCE

    play(look)


def test_what_got_worse_or_better_or_stayed_is_all_there_is(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            await tab.open(f"{url}#/before/p%2Fr")
            await tab.until("document.body.innerText.includes('held-out scenarios, first')")
            text = await tab.text()
            found = re.search(
                r"(\d+) held-out .*: (\d+) got worse, (\d+) got better, (\d+) unch", text
            )
            assert found, text
            assert int(found[1]) == sum(map(int, found.groups()[1:]))

    play(look)


def test_the_script_of_charts_is_loaded_for_the_first_that_is_seen(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            await tab.open(f"{url}#/before/p%2Fr")
            await tab.go("#/tokens/p%2Fr")
            assert not any("plotly" in u for u in tab.requests)
            await tab.go("#/overview/p%2Fr")
            await tab.until("document.querySelector('.plot .main-svg')")
            assert sum("plotly" in u for u in tab.requests) == 1

    play(look)


def test_a_long_run_is_filled_in_while_its_newest_steps_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("art_cli.view.collection.AT_ONCE", 0.0)
    root = make_run(tmp_path / "p" / "r")

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            await tab.open(f"{url}#/episodes/p%2Fr")
            await tab.until("document.body.innerText.includes('104 of 104 episodes')")

    play(look)


def test_filters_stand_in_the_address_and_keys_step_through(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            await tab.open(url)
            text = await tab.go("#/episodes/p%2Fr?split=val&high=0.4")
            assert "train 1" not in text and "val 4" in text
            text = await tab.go("#/episodes/p%2Fr?text=never%203")
            assert "never" not in text and " of 104 episodes" in text
            await tab.go("#/group/p%2Fr/train/2/1")
            for key, address in (("j", "/train/2/2"), ("k", "/train/2/1"), ("2", "#/groups/")):
                pressed = f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}})"
                await tab.run(f"document.dispatchEvent({pressed})")
                await tab.until(f"location.hash.includes('{address}')")
                await tab.until("document.getElementById('main').dataset.ready")

    play(look)


@pytest.mark.parametrize("width", [400, 1600])
def test_no_view_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    root = make_run(tmp_path / "p" / "r")

    async def look(tab: Tab) -> None:
        await tab.look(width)
        async with served(root) as url:
            await tab.open(url)
            for address in VIEWS:
                await tab.go(address)
                over = await tab.run("document.documentElement.scrollWidth - innerWidth")
                assert over <= 0, address
                unnamed = (
                    "[...document.querySelectorAll('button, select, input')].filter("
                    "e => !e.ariaLabel && !e.innerText.trim() && !e.labels?.length).length"
                )
                assert await tab.run(unnamed) == 0, address

    play(look)


def test_a_damaged_run_shows_what_can_be_shown_and_says_what_cannot(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    torn = root / "trajectories" / "train-000002.jsonl.gz"
    torn.write_bytes(torn.read_bytes()[:200])
    (root / "status.json").write_text("{")
    (root / "config.yaml").unlink()

    async def look(tab: Tab) -> None:
        async with served(root) as url:
            await see_all(tab, url)
            await tab.go("#/overview/p%2Fr")
            await tab.until("document.body.innerText.includes('train-000002.jsonl.gz')")
            text = await tab.text()
            assert "status.json" in text and "config.yaml" in text
            await tab.go("#/group/p%2Fr/train/77/0")
            assert "no train trajectories of step 77" in await tab.text()
            tab.errors = [e for e in tab.errors if "404" not in e]

    play(look)


def test_several_runs_lie_over_each_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / "p" / name)

    async def look(tab: Tab) -> None:
        await tab.look(1600)
        async with served(tmp_path) as url:
            await tab.open(url)
            assert "2 runs" in await tab.text()
            await tab.until("document.querySelector('.plot .main-svg')")
            await tab.until("document.querySelector('.plot').data?.length === 2")
            await tab.run("document.querySelector('input[type=checkbox]').click()")
            await tab.until("document.querySelector('.plot').data?.length === 1")
            await tab.run(
                "const over = document.querySelector('select[aria-label=Over]');"
                "over.value = 'tokens'; over.dispatchEvent(new Event('change'))"
            )
            await tab.until("location.hash.includes('x=tokens')")
            await tab.until("document.querySelectorAll('.plot')[1].data?.[0].x[1] === 8000")

    play(look)


def test_the_page_of_an_evaluation_shows_candidates_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rude(Player):
        def __call__(self, ask: Ask) -> Answer:
            return Answer(text=PAYLOAD, calls=super().__call__(ask).calls)

    monkeypatch.chdir(tmp_path)
    quiz = Quiz.scenarios.__code__.co_filename
    Path("quiz.yaml").write_text(
        f'project: test\nname: quiz\nenv: {{use: "{quiz}:Quiz"}}\nmodel: {{base: tiny}}\n'
        "train: {steps: 1}\n"
    )
    with LoopbackJudge(then=Rude()) as server:
        words = ["--trials", "2", "--html", "page.html"]
        for name in ("one", "other"):
            words += ["--candidate", f"openai/{name},api_base={server.api_base}"]
        result = CliRunner().invoke(app, ["eval", "quiz.yaml", *words])
    assert result.exit_code == 0, (result.output, result.exception)

    async def look(tab: Tab) -> None:
        await tab.look(1200)
        await tab.send("Page.navigate", url=(tmp_path / "page.html").as_uri())
        await tab.until("document.querySelectorAll('#grid button').length === 40")
        await tab.run("document.querySelectorAll('#grid button')[1].click()")
        text = await tab.text()
        assert "openai/one, trial 2" in text and "openai/other, trial 2" in text
        assert PAYLOAD in text and await tab.run("window.hurt") is None
        assert await tab.run("document.querySelectorAll('.talk article.sibling').length") == 2
        assert "first divergence" in text or "the same as openai/one" in text
        await tab.run("document.getElementById('theme').click()")
        assert await tab.run("document.documentElement.dataset.theme") == "dark"
        await tab.picture(tmp_path / "page.png")

    play(look)
