"""The embedded engine keeps the contract, repeats itself to the bit, and shares out its rows."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
import torch
from architectures import chatml_tokenizer, make_architecture
from engine_contract import *  # noqa: F403 (the tests of the contract)
from engine_contract import NEVER, PROMPTS, SHARED, Start, assert_exact, play, sampled

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Engine
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.engines.embedded.sampler import log_distribution
from art_cli.errors import EngineError
from art_cli.models.policy import Policy
from art_cli.types import Completion


@pytest.fixture
def start() -> Start:
    def make(
        policy: Policy,
        *,
        stop_ids: frozenset[int] = NEVER,
        apart: bool = False,
        **settings: Any,
    ) -> Engine:
        engine = EngineConfig(**{k: v for k, v in settings.items() if k in EngineConfig.__slots__})
        sampling = SamplingConfig(
            **{k: v for k, v in settings.items() if k not in EngineConfig.__slots__}
        )
        if apart:
            return TransformersEngine(policy.twin(), engine, sampling, stop_ids, source=policy)
        return TransformersEngine(policy, engine, sampling, stop_ids)

    return make


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("concurrent", [1, 3, 5])
def test_more_sessions_than_fit_take_turns(
    start: Start, make_policy: Any, concurrent: int, deterministic: bool
) -> None:
    policy = make_policy()
    engine = start(
        policy,
        max_num_seqs=concurrent,
        deterministic=deterministic,
        max_tokens=5,
        stop_ids=frozenset(range(30)),
    )
    sequences = play(engine, PROMPTS["some_share_one"], jitter=1)
    assert len(sequences) == 12
    assert_exact(policy, sequences)


@pytest.mark.parametrize("architecture", ["qwen3_5_text", "stablelm", "jamba"])
def test_other_ways_of_reading_take_turns_too(start: Start, architecture: str) -> None:
    """Recurrent states, caches of transformers' own, and none at all."""
    policy = Policy(make_architecture(architecture), chatml_tokenizer())
    engine = start(policy, max_num_seqs=5, max_tokens=4, stop_ids=frozenset(range(30)))
    sequences = play(engine, PROMPTS["some_share_one"], turns=2, jitter=1)
    assert len(sequences) == 12
    assert_exact(policy, sequences)


def test_log_distribution_divides_by_the_temperature() -> None:
    logits = torch.tensor([[0.0, math.log(2.0), math.log(4.0)]])
    hot = log_distribution(logits, SamplingConfig(temperature=2.0))
    parts = [1.0, math.sqrt(2), 2.0]
    expected = [math.log(p / sum(parts)) for p in parts]
    assert hot[0].tolist() == pytest.approx(expected, rel=1e-5)


def test_log_distribution_keeps_the_top_k_and_the_smallest_set_that_holds_top_p() -> None:
    logits = torch.tensor([[0.5, 0.05, 0.3, 0.15]]).log()
    k2 = log_distribution(logits, SamplingConfig(top_k=2)).exp()[0].tolist()
    assert k2 == pytest.approx([0.5 / 0.8, 0, 0.3 / 0.8, 0])
    for top_p, kept in [(0.4, [0]), (0.6, [0, 2]), (0.9, [0, 2, 3]), (0.99, [0, 1, 2, 3])]:
        p = log_distribution(logits, SamplingConfig(top_p=top_p)).exp()[0]
        assert [i for i in range(4) if p[i] > 0] == kept and float(p.sum()) == pytest.approx(1)
    both = log_distribution(logits, SamplingConfig(top_k=3, top_p=0.6)).exp()[0].tolist()
    assert both == pytest.approx([0.5 / 0.8, 0, 0.3 / 0.8, 0])


def test_two_runs_are_the_same_to_the_bit_whatever_the_envs_latencies(
    start: Start, make_policy: Any
) -> None:
    policy = make_policy()
    runs = []
    for jitter in (1, 2, 3):
        engine = start(policy, max_tokens=9, max_num_seqs=8, stop_ids=frozenset(range(40)))
        runs.append(play(engine, PROMPTS["some_share_one"], jitter=jitter))
    assert runs[0] == runs[1] == runs[2]


def test_one_engine_repeats_itself(start: Start, make_policy: Any) -> None:
    """Nothing of a batch is left over for the next."""
    engine = start(make_policy(), max_tokens=9, stop_ids=frozenset(range(40)))
    first = play(engine, PROMPTS["some_share_one"])
    play(engine, PROMPTS["nothing_shared"], turns=1)
    assert play(engine, PROMPTS["some_share_one"]) == first


def run(*jobs: Any) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 300)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_a_deterministic_engine_waits_for_a_session_that_stays_away(
    start: Start, make_policy: Any, deterministic: bool
) -> None:
    engine = start(make_policy(), max_tokens=3, deterministic=deterministic)

    async def one() -> tuple[bool, Completion]:
        here, away = engine.open(0), engine.open(1)
        answer = asyncio.ensure_future(here.generate(SHARED))
        done, _ = await asyncio.wait([answer], timeout=0.3 if deterministic else 300)
        away.close()
        completion = await asyncio.wait_for(answer, 300)
        here.close()
        return bool(done), completion

    went_ahead, completion = asyncio.run(one())
    assert went_ahead is not deterministic and len(completion.token_ids) == 3


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("concurrent", [1, 8])
def test_a_session_closed_while_it_waits_leaves_the_others_alone(
    start: Start, make_policy: Any, concurrent: int, deterministic: bool
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=30, max_num_seqs=concurrent, deterministic=deterministic)

    async def two_of_four() -> list[Completion]:
        sessions = [engine.open(i) for i in range(4)]
        tasks = [asyncio.ensure_future(s.generate(SHARED)) for s in sessions]
        for _ in range(5):
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        sessions[0].close()
        tasks[2].cancel()
        sessions[2].close()
        done = []
        for i in (1, 3):
            done.append(await asyncio.wait_for(tasks[i], 300))
            sessions[i].close()
        assert tasks[0].cancelled() and tasks[2].cancelled()
        return done

    undisturbed = sampled(play(start(policy, max_tokens=30), PROMPTS["identical"][:4], turns=1))
    assert [c.token_ids for c in asyncio.run(two_of_four())] == undisturbed[1::2]
    assert_exact(policy, play(engine, PROMPTS["identical"][:3]))  # and it is as good as new


def test_the_only_session_that_waits_may_give_up(start: Start, make_policy: Any) -> None:
    engine = start(make_policy(), max_tokens=400)

    async def one() -> Completion:
        first, second = engine.open(0), engine.open(1)
        second.close()
        task = asyncio.ensure_future(first.generate(SHARED))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        third = engine.open(2)
        first.close()
        done = await asyncio.wait_for(third.generate(SHARED), 300)
        third.close()
        return done

    assert len(asyncio.run(one()).token_ids) == 400


def test_a_forward_that_fails_fails_all_who_wait_and_all_who_come_later(
    start: Start, make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    engine = start(policy, max_num_seqs=2)

    def broken(*_: Any) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(policy, "hidden", broken)
    sessions = [engine.open(i) for i in range(5)]
    found = run(*(s.generate(SHARED) for s in sessions))
    assert all(isinstance(e, EngineError) and "out of memory" in str(e) for e in found)
    (later,) = run(engine.open(9).generate(SHARED))
    assert isinstance(later, EngineError) and "out of memory" in str(later)


def test_logits_that_are_not_numbers_are_an_engines_failure(start: Start, make_policy: Any) -> None:
    policy = make_policy()
    policy.head.weight.data[5] = float("nan")
    (found,) = run(start(policy).open(0).generate(SHARED))
    assert isinstance(found, EngineError) and "not finite" in str(found)


def test_one_long_prompt_does_not_pad_all_the_short_ones(
    start: Start, make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    read: list[torch.Size] = []
    hidden = policy.hidden
    monkeypatch.setattr(policy, "hidden", lambda ids, *a: read.append(ids.shape) or hidden(ids, *a))
    engine = start(policy, max_tokens=1)
    prompts = [[i, *range(10 + i % 3)] for i in range(40)] + [[50, *range(100)]]
    answers = run(*(engine.open(i).generate(p) for i, p in enumerate(prompts)))
    assert len(answers) == 41 and sum(n.numel() for n in read) < 1.5 * sum(map(len, prompts))
    assert len(read) == 2


def test_a_sync_waits_for_turns_in_flight_alone(start: Start, make_policy: Any) -> None:
    """A turn that is asked for meanwhile, by one who has a row too, is the new weights'."""
    policy = make_policy()
    engine = start(policy, deterministic=False, apart=True, max_tokens=60)

    async def three() -> list[Completion]:
        long, short = engine.open(0), engine.open(1)
        slow = asyncio.ensure_future(long.generate(SHARED))
        first = await short.generate(SHARED, max_tokens=2)
        syncing = asyncio.ensure_future(engine.sync(1))
        await asyncio.sleep(0)
        second = await short.generate([*SHARED, *first.token_ids], max_tokens=2)
        assert slow.done() and syncing.done()
        return [await slow, first, second]

    answers = asyncio.run(asyncio.wait_for(three(), 300))
    assert [a.policy_version for a in answers] == [0, 0, 1]


def test_a_step_waits_for_the_player_whose_turn_comes(start: Start, make_policy: Any) -> None:
    """Two games of two players: in each, one of them is with the engine or expected."""
    engine = start(make_policy(), max_tokens=3, deterministic=True)
    steps: list[int] = []

    async def game(number: int) -> None:
        players = [engine.open(2 * number + slot) for slot in range(2)]
        players[1].expect(False)
        for turn in range(6):
            now, before = players[turn % 2], players[1 - turn % 2]
            now.expect(True)
            before.expect(False)
            for _ in range(number * turn):  # one of the games is slower than the other
                await asyncio.sleep(0)
            await now.generate([*SHARED, number, turn])
            steps.append(turn)
        for player in players:
            player.close()

    async def both() -> None:
        await asyncio.wait_for(asyncio.gather(game(0), game(1)), 300)

    asyncio.run(both())
    assert steps == [turn for turn in range(6) for _ in range(2)]
