"""What every engine must do. Whoever imports these tests gives them a fixture `start`.

`start(policy, stop_ids=..., **settings)` begins an engine that serves the policy; the settings are
those of the sections engine and sampling by name, and `apart`: the policy may be changed while the
engine works.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from held import COLOUR, END, ORDER, answers, grammar, masked_logprobs, masks, sequence_of
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Engine, Session
from art_cli.engines.embedded.sampler import log_distribution
from art_cli.errors import ConstraintError
from art_cli.models.policy import Policy
from art_cli.types import Completion, Sequence

Start = Callable[..., Engine]
NEVER: frozenset[int] = frozenset()
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
        return list(await asyncio.wait_for(asyncio.gather(*jobs), 300))

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
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "initializer_range": 0.15,
    }
    if kind.startswith("qwen3"):
        return make_policy(rank=4 if kind == "qwen3_lora" else 0)
    torch.manual_seed(0)
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**size, num_key_value_heads=1))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**size, num_key_value_heads=2))
    return Policy(model, make_policy().tokenizer)


@pytest.mark.parametrize("prompts", PROMPTS)
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_lora", "llama", "qwen2"])
def test_logprobs_of_many_multi_turn_sessions_are_those_of_a_plain_forward(
    start: Start, make_policy: Any, kind: str, prompts: str
) -> None:
    policy = tiny_policy(kind, make_policy)
    engine = start(policy, max_tokens=7, temperature=0.7, stop_ids=frozenset(range(30)))
    assert_exact(policy, play(engine, PROMPTS[prompts]), 0.7)


def test_one_session_after_another_without_waiting_for_all(start: Start, make_policy: Any) -> None:
    """Rows are freed and taken again, and rows that nobody needs are dropped."""
    policy = make_policy()
    engine = start(policy, max_tokens=9, max_num_seqs=6, stop_ids=frozenset(range(60)))
    prompts = [SHARED[: 1 + i % 40] + some_ids(i % 7) for i in range(40)]
    assert_exact(policy, play(engine, prompts, turns=2, jitter=3))


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


def complete(engine: Engine, prompt: list[int], seed: int = 0) -> Completion:
    async def one() -> Completion:
        session = engine.open(seed)
        try:
            return await session.generate(prompt)
        finally:
            session.close()

    return asyncio.run(asyncio.wait_for(one(), 300))


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


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.6}, {"top_k": 6}, {"top_p": 0.7, "temperature": 1.5}]
)
def test_tokens_are_drawn_as_often_as_their_probability_says(
    start: Start, make_policy: Any, settings: dict[str, Any]
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=1, max_num_seqs=2000, **settings)
    draws = 2000
    ids = [row[0] for row in sampled(play(engine, [SHARED[:4]] * draws, turns=1))]
    with torch.no_grad():
        hidden = policy.hidden(torch.tensor([SHARED[:4]]), torch.arange(4)[None])[0, -1:]
    p = log_distribution(policy.head.logits(hidden), SamplingConfig(**settings)).exp()[0].tolist()
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


def test_an_engine_serves_one_event_loop_after_another(start: Start, make_policy: Any) -> None:
    """A script may call asyncio.run once for each step."""
    engine = start(make_policy(), max_tokens=3)

    async def one() -> Completion:
        here, away = engine.open(0), engine.open(1)
        answer = asyncio.ensure_future(here.generate(SHARED))
        await asyncio.sleep(0.02)
        away.close()
        completion = await asyncio.wait_for(answer, 300)
        here.close()
        return completion

    for _ in range(3):
        assert len(asyncio.run(one()).token_ids) == 3


@pytest.mark.parametrize("concurrent", [256, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_a_sync_under_load_ends_turns_with_the_weights_they_began_with(
    start: Start, make_policy: Any, rank: int, concurrent: int
) -> None:
    """Every turn says which weights answered, and its log-probabilities are theirs.

    A sync also ends where more episodes are open than the engine has room for.
    """
    policy = make_policy(rank=rank)
    engine = start(policy, max_tokens=9, apart=True, deterministic=False, max_num_seqs=concurrent)
    by_version: dict[int, Policy] = {}

    async def player(i: int) -> list[tuple[list[int], Completion]]:
        session, ids, out = engine.open(i), list(PROMPTS["some_share_one"][i]), []
        for _ in range(12):
            completion = await session.generate(list(ids))
            out.append((list(ids), completion))
            ids += completion.token_ids + SHARED[: 1 + i]
        session.close()
        return out

    async def trainer() -> None:
        for version in range(1, 6):
            await asyncio.sleep(0.02)
            for p in policy.trainable:
                p.data += 0.1 * torch.randn_like(p)
            by_version[version] = policy.twin()
            await engine.sync(version)

    async def both() -> list[list[tuple[list[int], Completion]]]:
        by_version[0] = policy.twin()
        await engine.sync(0)
        *episodes, _ = await asyncio.gather(*(player(i) for i in range(8)), trainer())
        return episodes  # type: ignore[return-value]

    turns = [turn for episode in asyncio.run(asyncio.wait_for(both(), 100)) for turn in episode]
    seen = {completion.policy_version for _, completion in turns}
    assert len(seen) >= 3 and seen <= set(by_version)
    for ids, completion in turns:
        sequence = Sequence()
        sequence.extend_prompt(ids)
        sequence.extend_sampled(completion)
        assert_exact(by_version[completion.policy_version], [sequence])


def test_a_turn_that_nobody_waits_for_leaves_the_others_alone(
    start: Start, make_policy: Any
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=30, deterministic=False)

    async def two_of_four() -> list[Completion]:
        sessions = [engine.open(i) for i in range(4)]
        tasks = [asyncio.ensure_future(s.generate(SHARED)) for s in sessions]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        done = [await asyncio.wait_for(tasks[i], 300) for i in (1, 3)]
        for session in sessions:
            session.close()
        return done

    undisturbed = sampled(play(engine, PROMPTS["identical"][:4], turns=1))
    assert [c.token_ids for c in asyncio.run(two_of_four())] == undisturbed[1::2]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_turn_under_a_grammar_is_drawn_from_what_of_the_policy_it_allows(
    start: Start, make_policy: Any, temperature: float
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=60, temperature=temperature, stop_ids=frozenset({END}))
    prompts = [*PROMPTS["some_share_one"], *PROMPTS["identical"]]
    kinds = [grammar(ORDER), None, grammar(COLOUR)]
    grammars = [kinds[i % 3] for i in range(len(prompts))]
    found = answers(engine, prompts, grammars)
    model: Any = copy.deepcopy(policy.model)
    model.set_attn_implementation("sdpa")
    ends = Counter[str]()
    for prompt, text, done in zip(prompts, grammars, found, strict=True):
        assert done.grammar == text and (text or not done.forced)
        s = sequence_of(prompt, done)
        with torch.no_grad():
            true = masked_logprobs(model, policy, s, temperature)[len(prompt) - 1 :]
        assert (torch.tensor(done.logprobs) - true).abs().max() < 1e-4
        if text is None:
            continue
        allowed = masks(policy, text, done.token_ids)
        assert done.forced == {i for i, row in enumerate(allowed.sum(1).tolist()) if row == 1}
        assert all(done.logprobs[i] == 0 and s.mask[len(prompt) + i] == 0 for i in done.forced)
        said = str(policy.tokenizer.decode(done.token_ids, skip_special_tokens=True))
        if done.finish_reason == "stop":
            value = json.loads(said)
            assert value in COLOUR["enum"] or 0 <= value["count"] <= 999
            assert done.token_ids[-1] == END and END not in done.token_ids[:-1]
        ends[done.finish_reason] += 1
    assert ends["stop"] > 8


def test_the_frequencies_under_a_grammar_are_the_policys(start: Start, make_policy: Any) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=12, stop_ids=frozenset({END}))
    found = answers(engine, [[7, 8, 9]] * 2000, [grammar(COLOUR)] * 2000)
    said = Counter(tuple(c.token_ids) for c in found)
    texts = {policy.tokenizer.decode(ids[:-1]) for ids in said}
    assert texts == {json.dumps(value) for value in COLOUR["enum"]}
    for ids, num in said.items():
        logprobs = next(c.logprobs for c in found if tuple(c.token_ids) == ids)
        expected = math.exp(sum(logprobs))
        assert abs(num / 2000 - expected) < 4 * math.sqrt(expected / 2000)


def test_a_grammar_that_is_not_met_in_time_cuts_the_turn_off(
    start: Start, make_policy: Any
) -> None:
    engine = start(make_policy(), max_tokens=60, stop_ids=frozenset({END}))
    [done] = answers(engine, [[7, 8, 9]], [grammar(ORDER)], max_tokens=4)
    assert done.finish_reason == "length" and len(done.token_ids) == 4


@pytest.mark.parametrize(("schema", "what"), [({"not": {}}, "not"), ({"$ref": "#"}, "no answer")])
def test_a_grammar_that_is_not_supported_is_refused_and_the_engine_goes_on(
    start: Start, make_policy: Any, schema: Any, what: str
) -> None:
    engine = start(make_policy(), max_tokens=60, stop_ids=frozenset({END}))
    with pytest.raises(ConstraintError, match=what):
        answers(engine, [[7, 8, 9]], [grammar(schema)])
    [done] = answers(engine, [[7, 8, 9]], [grammar(COLOUR)])
    assert done.finish_reason == "stop"


@pytest.mark.parametrize("text", [None, grammar(ORDER)], ids=["free", "held"])
def test_the_likeliest_tokens_are_told_where_they_are_asked_for(
    start: Start, make_policy: Any, text: str | None
) -> None:
    policy = make_policy()
    engine = start(policy, max_tokens=12, temperature=0.8, stop_ids=frozenset({END}))
    prompt = [7, 8, 9]
    [done] = answers(engine, [prompt], [text], top_logprobs=20)
    ids = [*prompt, *done.token_ids]
    model: Any = copy.deepcopy(policy.model)
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 2:-1]
    if text:
        logits = logits.masked_fill(~masks(policy, text, done.token_ids), -torch.inf)
    logprobs = (logits / 0.8).log_softmax(-1)
    assert len(done.top_logprobs) == len(done.token_ids)
    each = zip(logprobs, done.top_logprobs, done.token_ids, done.logprobs, strict=True)
    for row, top, i, p in each:
        assert len(top) == min(20, int((row > -torch.inf).sum()))
        likeliest = row.topk(len(top)).values.tolist()
        assert list(top.values()) == pytest.approx(likeliest, abs=1e-4)
        assert top.get(i, p) == pytest.approx(p, abs=1e-6)
