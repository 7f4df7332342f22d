"""Texts that end a turn are found as soon as they are complete, wherever tokens end."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from art_cli.engines.embedded.stops import StopTexts

TEXT = "the valüe of 🙂 red is 7, and the value of blue is 9 🙂🙂 thank you"


def pieces(text: str, seed: int) -> list[bytes]:
    rng, data, out = random.Random(seed), text.encode(), []
    while data:
        size = rng.randrange(1, 5)
        out.append(data[:size])
        data = data[size:]
    return out


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("stop", ["🙂", "red", " is 9", "e of 🙂 r", "u", "the value", "zzz", TEXT])
def test_a_text_is_found_with_the_token_that_completes_it(stop: str, seed: int) -> None:
    tokens = pieces(TEXT, seed)
    stops = StopTexts((stop, "not here", "q" * 500), lambda ids: join(tokens, ids))
    found = [stops.end_with(list(range(n + 1))) for n in range(len(tokens))]
    so_far = [b"".join(tokens[: n + 1]) for n in range(len(tokens))]
    expected = [stop.encode() in text for text in so_far]
    assert found.index(True) == expected.index(True) if any(expected) else not any(found)


def join(tokens: list[bytes], ids: list[int]) -> str:
    return b"".join(tokens[i] for i in ids).decode(errors="replace")


def test_a_real_tokenizers_tokens(make_policy: Any) -> None:
    tokenizer = make_policy().tokenizer
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    stops = StopTexts(("blue is",), lambda some: str(tokenizer.decode(some)))
    found = [stops.end_with(ids[: n + 1]) for n in range(len(ids))]
    text = tokenizer.decode(ids[: found.index(True) + 1])
    assert "blue is" in text and "blue is" not in tokenizer.decode(ids[: found.index(True)])


def test_many_long_texts_cost_no_more_than_one() -> None:
    many = tuple(f"{i:05d}" * 100 for i in range(5000))
    tokens = [b"word "] * 2000

    def seconds(texts: tuple[str, ...]) -> float:
        stops = StopTexts(texts, lambda ids: join(tokens, ids))
        began = time.process_time()
        for n in range(1, 2001):
            assert not stops.end_with(range(n))  # type: ignore[arg-type]
        return time.process_time() - began

    assert seconds(many) < 20 * seconds(("five!",)) + 0.2
