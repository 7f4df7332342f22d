"""A library that runs its own rollout, and an env that answers for its model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from art_envs.adapters.driven import DrivenRollout, text_of


def message(text: Any) -> Any:
    return SimpleNamespace(content=text)


def run(rollout: Callable[[DrivenRollout], Coroutine[Any, Any, Any]], *says: str) -> list[Any]:
    """Return what is heard at first and after each answer, and what the rollout gives."""

    async def go() -> list[Any]:
        driven = DrivenRollout("theirs")
        try:
            heard: list[Any] = [await driven.begin(rollout(driven))]
            heard += [await driven.say(message(text)) for text in says]
            texts = [part and [text_of(m) for m in part] for part in heard]
            return [*texts, await driven.result()]
        finally:
            await driven.close()

    return asyncio.run(go())


async def twice(driven: DrivenRollout) -> str:
    said = [message("a question")]
    said.append(await driven.ask(said))
    said += [message([{"type": "text", "text": "and "}, {"text": "another"}]), message("go")]
    said.append(await driven.ask(said))
    return " ".join(text_of(m) for m in said)


def test_each_prompt_is_heard_from_where_it_goes_on() -> None:
    heard = run(twice, "one", "two")
    assert heard == [
        ["a question"],
        ["and another", "go"],
        None,
        "a question one and another go two",
    ]


async def rewrites(driven: DrivenRollout) -> None:
    await driven.ask([message("a question")])
    await driven.ask([message("another one"), message("x"), message("y")])


async def fails(driven: DrivenRollout) -> None:
    await driven.ask([message("a question")])
    raise KeyError("theirs")


async def asks_nothing(driven: DrivenRollout) -> None:
    pass


@pytest.mark.parametrize(
    ("rollout", "error", "said"),
    [
        (rewrites, RuntimeError, "theirs rewrites what was said"),
        (fails, KeyError, "theirs"),
        (asks_nothing, RuntimeError, "theirs ended before it asked its model"),
    ],
)
def test_what_goes_wrong_is_raised(rollout: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        run(rollout, "one")


def test_one_that_is_closed_cleans_up() -> None:
    ended: list[str] = []

    async def waits(driven: DrivenRollout) -> None:
        try:
            await driven.ask([message("a question")])
        finally:
            ended.append("cleaned up")

    async def go() -> None:
        driven = DrivenRollout("theirs")
        await driven.begin(waits(driven))
        await driven.close()

    asyncio.run(go())
    assert ended == ["cleaned up"]


def test_one_that_is_cut_off_hears_why() -> None:
    async def ends(driven: DrivenRollout) -> str:
        try:
            await driven.ask([message("a question")])
        except ValueError as e:
            return f"heard {e}"
        return ""

    async def go() -> str:
        driven = DrivenRollout("theirs")
        await driven.begin(ends(driven))
        driven.cut_off(ValueError("full"))
        return await driven.result()

    assert asyncio.run(go()) == "heard full"
