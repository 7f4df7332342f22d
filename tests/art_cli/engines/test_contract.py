"""What every engine must do. A further engine is one more entry of ENGINES."""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from art_cli.config.schema import EngineConfig, SamplingConfig
from art_cli.engines.base import Engine, Session
from art_cli.engines.transformers import TransformersEngine, log_distribution
from art_cli.errors import EngineError
from art_cli.policy import Policy
from art_cli.types import Completion, Sequence

Start = Callable[..., Engine]
ENGINES = {"transformers": TransformersEngine}
NEVER = frozenset({10**9})
RNG = random.Random(0)
SHARED = [RNG.randrange(270) for _ in range(40)]


def some_ids(num: int) -> list[int]:
    return [RNG.randrange(270) for _ in range(num)]


PROMPTS = {
    "nothing_shared": [some_ids(3 + 5 * i) for i in range(12)],
    "a_shared_prefix": [SHARED + some_ids(1 + 4 * i) for i in range(12)],
    "a_long_shared_prefix": [3 * SHARED + some_ids(1 + i) for i in range(12)],
    "some_share_one": [(SHARED if i % 3 else []) + some_ids(2 + i) for i in range(12)],
    "identical": [SHARED] * 12,
    "short": [[i] for i in range(12)],
}


@pytest.fixture(params=ENGINES)
def start(request: pytest.FixtureRequest) -> Start:
    """Start an engine on a policy; settings of engine and sampling by name."""

    def make(policy: Policy, *, stop_ids: frozenset[int] = NEVER, **settings: Any) -> Engine:
        engine = {k: v for k, v in settings.items() if k in EngineConfig.__slots__}
        sampling = {k: v for k, v in settings.items() if k not in engine}
        return ENGINES[request.param](
            policy, EngineConfig(**engine), SamplingConfig(**sampling), stop_ids
        )

    return make


async def episode(session: Session, prompt: list[int], turns: int, wait: Any) -> Sequence:
    sequence = Sequence()
    sequence.extend_prompt(list(prompt))
    for turn in range(turns):
        await wait()
        sequence.extend_sampled(await session.generate(list(sequence.ids)))
        sequence.extend_prompt(SHARED[: 1 + (len(prompt) + turn) % 5])
    session.close()
    return sequence


def play(
    engine: Engine, prompts: list[list[int]], *, turns: int = 3, seed: int = 0, jitter: int = 0
) -> list[Sequence]:
    """Multi-turn episodes, all at once; `jitter` seeds how long each env takes."""
    delays = random.Random(jitter)

    async def wait() -> None:
        if jitter:
            await asyncio.sleep(delays.random() * 0.003)

    async def everyone() -> list[Sequence]:
        sessions = [engine.open(seed + i) for i in range(len(prompts))]
        jobs = [episode(s, p, turns, wait) for s, p in zip(sessions, prompts, strict=True)]
        return list(await asyncio.wait_for(asyncio.gather(*jobs), 60))

    return asyncio.run(everyone())


def sampled(sequences: list[Sequence]) -> list[list[int]]:
    return [[i for i, m in zip(s.ids, s.mask, strict=True) if m] for s in sequences]


def assert_exact(policy: Policy, sequences: list[Sequence], temperature: float = 1.0) -> None:
    """Every engine log-probability is that of transformers' own forward of the whole sequence."""
    model: Any = copy.deepcopy(policy.model)
    (model.base_model.model if policy.has_adapter else model).set_attn_implementation("sdpa")
    for s in sequences:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([s.ids]), use_cache=False).logits[0, :-1]
        logprobs = (logits / temperature).log_softmax(-1)
        chosen = logprobs.gather(1, torch.tensor(s.ids[1:])[:, None])[:, 0].tolist()
        for mine, true, m in zip(s.engine_logprobs[1:], chosen, s.mask[1:], strict=True):
            assert not m or abs(mine - true) < 1e-4
        assert s.num_sampled > 0


def tiny_policy(kind: str, make_policy: Any) -> Policy:
    size: dict[str, Any] = {
        "vocab_size": 270,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "initializer_range": 0.15,
    }
    if kind.startswith("qwen3"):
        return make_policy(rank=4 if kind == "qwen3_lora" else 0)
    torch.manual_seed(0)
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**size, num_key_value_heads=1))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**size, num_key_value_heads=4))
    return Policy(model, make_policy().tokenizer)


# ---------------------------------------------------------------- exactness


@pytest.mark.parametrize("prompts", PROMPTS)
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_lora", "llama", "qwen2"])
def test_logprobs_of_many_multi_turn_sessions_are_those_of_a_plain_forward(
    start: Start, make_policy: Any, kind: str, prompts: str
) -> None:
    policy = tiny_policy(kind, make_policy)
    engine = start(policy, max_tokens=7, temperature=0.7, stop_ids=frozenset(range(30)))
    assert_exact(policy, play(engine, PROMPTS[prompts]), 0.7)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("concurrent", [1, 3, 5])
def test_more_sessions_than_fit_take_turns(
    start: Start, make_policy: Any, concurrent: int, deterministic: bool
) -> None:
    policy = make_policy()
    engine = start(
        policy,
        max_concurrent=concurrent,
        deterministic=deterministic,
        max_tokens=5,
        stop_ids=frozenset(range(30)),
    )
    sequences = play(engine, PROMPTS["some_share_one"], jitter=1)
    assert len(sequences) == 12
    assert_exact(policy, sequences)


def test_one_session_after_another_without_waiting_for_all(start: Start, make_policy: Any) -> None:
    """Rows are freed and taken again, and rows that nobody needs are dropped."""
    policy = make_policy()
    engine = start(policy, max_tokens=9, max_concurrent=6, stop_ids=frozenset(range(60)))
    prompts = [SHARED[: 1 + i % 40] + some_ids(i % 7) for i in range(40)]
    assert_exact(policy, play(engine, prompts, turns=2, jitter=3))


def test_logprobs_of_given_ids_are_those_of_a_plain_forward(start: Start, make_policy: Any) -> None:
    policy = make_policy(rank=4)
    engine = start(policy, temperature=0.5)
    mine = asyncio.run(engine.logprobs(SHARED))
    sequence = Sequence(ids=SHARED, mask=[0] + [1] * 39, engine_logprobs=[0.0, *mine])
    assert_exact(policy, [sequence])  # at temperature 1, whatever is sampled with


@pytest.mark.parametrize("num", [2, 3, 5])
def test_logprobs_of_few_ids(start: Start, make_policy: Any, num: int) -> None:
    policy = make_policy()
    mine = asyncio.run(start(policy).logprobs(SHARED[:num]))
    sequence = Sequence(ids=SHARED[:num], mask=[0] + [1] * (num - 1), engine_logprobs=[0.0, *mine])
    assert_exact(policy, [sequence])


def test_a_fork_keeps_what_is_shared_and_forgets_the_rest(start: Start, make_policy: Any) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=6)

    async def forks() -> list[Sequence]:
        session, out = engine.open(0), []
        for prompt in (SHARED, SHARED[:25] + some_ids(9), SHARED[:10], SHARED[:10], some_ids(50)):
            sequence = Sequence()
            sequence.extend_prompt(prompt)
            sequence.extend_sampled(await session.generate(list(prompt)))
            out.append(sequence)
        session.close()
        return out

    assert_exact(policy, asyncio.run(forks()))


# ---------------------------------------------------------------- ends of a turn


def complete(engine: Engine, prompt: list[int], seed: int = 0) -> Completion:
    async def one() -> Completion:
        session = engine.open(seed)
        try:
            return await session.generate(prompt)
        finally:
            session.close()

    return asyncio.run(asyncio.wait_for(one(), 30))


def test_a_stop_token_ends_a_turn_and_belongs_to_it(start: Start, make_policy: Any) -> None:
    stops = frozenset(range(0, 270, 3))
    engine = start(make_policy(), stop_ids=stops, max_tokens=200)
    for seed in range(5):
        done = complete(engine, SHARED, seed)
        assert done.finish_reason == "stop" and len(done.logprobs) == len(done.token_ids)
        assert done.token_ids[-1] in stops and not stops & set(done.token_ids[:-1])


def test_max_tokens_ends_a_turn(start: Start, make_policy: Any) -> None:
    done = complete(start(make_policy(), max_tokens=11), SHARED)
    assert done.finish_reason == "length" and len(done.token_ids) == 11


def test_a_full_context_ends_a_turn(start: Start, make_policy: Any) -> None:
    done = complete(start(make_policy(), max_tokens=100, max_model_len=47), SHARED)
    assert done.finish_reason == "length" and len(SHARED) + len(done.token_ids) == 47


# ---------------------------------------------------------------- randomness


def test_what_is_sampled_follows_from_the_seed_alone(start: Start, make_policy: Any) -> None:
    policy = make_policy()
    prompts = PROMPTS["some_share_one"]
    crowd = sampled(play(start(policy, max_tokens=8), prompts))
    for i in (0, 5, 11):
        alone = sampled(play(start(policy, max_tokens=8), [prompts[i]], seed=i))
        assert alone[0] == crowd[i]


def test_other_seeds_give_other_tokens(start: Start, make_policy: Any) -> None:
    engine = start(make_policy(), max_tokens=8)
    same_prompt = sampled(play(engine, PROMPTS["identical"]))
    assert len(set(map(tuple, same_prompt))) == 12


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


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.6}, {"top_k": 6}, {"top_p": 0.7, "temperature": 1.5}]
)
def test_tokens_are_drawn_as_often_as_their_probability_says(
    start: Start, make_policy: Any, settings: dict[str, Any]
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=1, max_concurrent=2000, **settings)
    draws = 2000
    ids = [row[0] for row in sampled(play(engine, [SHARED[:4]] * draws, turns=1))]
    with torch.no_grad():
        hidden = policy.hidden(torch.tensor([SHARED[:4]]), torch.arange(4)[None])[0, -1:]
    p = log_distribution(hidden @ policy.head.T, SamplingConfig(**settings)).exp()[0].tolist()
    counts = Counter(ids)
    assert all(p[i] > 0 for i in counts)
    # Pearson's statistic over tokens that are expected 5 times or more, the rest as one.
    common = [i for i, x in enumerate(p) if x * draws >= 5]
    seen, due = [counts[i] for i in common], [p[i] * draws for i in common]
    if sum(p) - sum(p[i] for i in common) > 1e-3:
        seen, due = [*seen, draws - sum(seen)], [*due, draws - sum(due)]
    statistic = sum((s - d) ** 2 / d for s, d in zip(seen, due, strict=True))
    degrees = len(seen) - 1
    assert statistic < degrees + 4 * math.sqrt(2 * degrees)


def test_two_runs_are_the_same_to_the_bit_whatever_the_envs_latencies(
    start: Start, make_policy: Any
) -> None:
    policy = make_policy()
    runs = []
    for jitter in (1, 2, 3):
        engine = start(policy, max_tokens=9, max_concurrent=8, stop_ids=frozenset(range(40)))
        runs.append(play(engine, PROMPTS["some_share_one"], jitter=jitter))
    assert runs[0] == runs[1] == runs[2]


def test_one_engine_repeats_itself(start: Start, make_policy: Any) -> None:
    """Nothing of a batch is left over for the next."""
    engine = start(make_policy(), max_tokens=9, stop_ids=frozenset(range(40)))
    first = play(engine, PROMPTS["some_share_one"])
    play(engine, PROMPTS["nothing_shared"], turns=1)
    assert play(engine, PROMPTS["some_share_one"]) == first


# ---------------------------------------------------------------- weights


def test_completions_name_the_version_that_answered(start: Start, make_policy: Any) -> None:
    engine = start(make_policy(), max_tokens=3)
    assert complete(engine, SHARED).policy_version == 0
    asyncio.run(engine.sync(7))
    assert complete(engine, SHARED).policy_version == engine.policy_version == 7


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_lora"])
def test_after_a_sync_nothing_of_the_old_weights_is_left(
    start: Start, make_policy: Any, kind: str
) -> None:
    policy = tiny_policy(kind, make_policy)
    engine = start(policy, max_tokens=5)
    play(engine, PROMPTS["a_shared_prefix"])
    for p in policy.trainable:
        p.data += 0.2 * torch.randn_like(p)
    asyncio.run(engine.sync(1))
    assert_exact(policy, play(engine, PROMPTS["a_shared_prefix"]))


def test_a_session_opened_before_a_sync_samples_from_the_new_weights(
    start: Start, make_policy: Any
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=5, deterministic=False)

    async def wait() -> None:
        pass

    async def across_a_sync() -> list[Sequence]:
        sessions = [engine.open(i) for i in range(4)]
        await asyncio.gather(*(episode(s, SHARED, 1, wait) for s in sessions[:2]))
        for p in policy.trainable:
            p.data += 0.2 * torch.randn_like(p)
        await engine.sync(1)
        return await asyncio.gather(*(episode(s, SHARED, 1, wait) for s in sessions[2:]))

    assert_exact(policy, asyncio.run(across_a_sync()))


# ---------------------------------------------------------------- who waits for whom


def run(*jobs: Any) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 30)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_a_deterministic_engine_waits_for_a_session_that_stays_away(
    start: Start, make_policy: Any, deterministic: bool
) -> None:
    engine = start(make_policy(), max_tokens=3, deterministic=deterministic)

    async def one() -> tuple[bool, Completion]:
        here, away = engine.open(0), engine.open(1)
        answer = asyncio.ensure_future(here.generate(SHARED))
        done, _ = await asyncio.wait([answer], timeout=0.3)
        away.close()
        completion = await asyncio.wait_for(answer, 10)
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
    engine = start(policy, max_tokens=30, max_concurrent=concurrent, deterministic=deterministic)

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
            done.append(await asyncio.wait_for(tasks[i], 10))
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
        done = await asyncio.wait_for(third.generate(SHARED), 10)
        third.close()
        return done

    assert len(asyncio.run(one()).token_ids) == 400


def test_an_engine_serves_one_event_loop_after_another(start: Start, make_policy: Any) -> None:
    """A script may call asyncio.run once for each step."""
    engine = start(make_policy(), max_tokens=3)

    async def one() -> Completion:
        here, away = engine.open(0), engine.open(1)
        answer = asyncio.ensure_future(here.generate(SHARED))
        await asyncio.sleep(0.02)
        away.close()
        completion = await asyncio.wait_for(answer, 10)
        here.close()
        return completion

    for _ in range(3):
        assert len(asyncio.run(one()).token_ids) == 3


def test_a_forward_that_fails_fails_all_who_wait_and_all_who_come_later(
    start: Start, make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    engine = start(policy, max_concurrent=2)

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
    policy.head.data[5] = float("nan")
    (found,) = run(start(policy).open(0).generate(SHARED))
    assert isinstance(found, EngineError) and "not finite" in str(found)
