"""RULER: what is asked about a group, what its scores become, and when there are none."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import Answer, Ask, Entries, LoopbackJudge, Step, quality, says, scored

from art_cli.config.sections.judge import JudgeConfig
from art_cli.errors import BudgetError, JudgeError, LLMError, PreflightError
from art_cli.llms.base import ChatMessage, Reply, Usage
from art_cli.llms.judges.answer import SHAPE
from art_cli.llms.judges.base import Transcript, Verdict
from art_cli.llms.judges.build import ask_once, make_judge
from art_cli.llms.judges.cache import AnswerCache
from art_cli.llms.judges.prompt import RUBRIC
from art_cli.llms.judges.ruler import Ruler

TASK = {"role": "user", "content": "Do it well."}


class Instant:
    """An LLM without a network: each call takes the next step of a loopback judge."""

    name = "instant"
    identity = "instant"
    spent = 0.0
    takes_bounds = False

    def __init__(self, *steps: Step, then: Step | None = None, room: int = 100_000) -> None:
        self.max_input_tokens = room
        self.usage = Usage()
        self.asked: list[Ask] = []
        self._steps = list(steps)
        self._then = then or scored()

    async def ask(self, messages: list[ChatMessage], schema: dict[str, Any] | None = None) -> Reply:
        assert schema is SHAPE
        await asyncio.sleep(0)
        self.asked.append(Ask(body={"messages": messages}, headers={}, raw=b""))
        self.usage.calls += 1
        answer = (self._steps.pop(0) if self._steps else self._then)(self.asked[-1])
        return Reply(text=answer.text, cut=answer.finish == "length")

    async def close(self) -> None: ...


def group(*qualities: float, **more: Any) -> list[Transcript]:
    """Trajectories that say how good they are."""
    return [
        Transcript(messages=[TASK, {"role": "assistant", "content": f"quality {q}"}], **more)
        for q in qualities
    ]


def judged(llm: Instant, transcripts: list[Transcript], **settings: Any) -> Verdict:
    return asyncio.run(Ruler(llm, **settings).judge(transcripts))


def values(verdict: Verdict) -> list[float]:
    return [s.score for s in verdict.scores]


def order_of(ask: Ask) -> list[float]:
    return [quality(t) for t in ask.document["trajectories"]]


# ---------------------------------------------------------------- one call


def test_scores_come_back_in_the_order_of_the_trajectories_with_their_reasons() -> None:
    verdict = judged(Instant(), group(0.3, 0.9, 0.1, 0.5))
    assert values(verdict) == [0.3, 0.9, 0.1, 0.5] and verdict.spread == 0
    assert all(s.explanation.startswith("because of") for s in verdict.scores)


def test_the_judge_sees_the_opening_and_the_tools_once_and_the_outcome_of_each() -> None:
    llm = Instant()
    transcripts = [
        *group(0.1, tools=[{"name": "look"}], context="nothing changed"),
        *group(0.2, tools=[{"name": "look"}, {"name": "sell"}], context="one order was cancelled"),
    ]
    judged(llm, transcripts, rubric="- Short is good.")
    document = llm.asked[0].document
    assert document["opening"] == [TASK]
    assert document["tools"] == [{"name": "look"}, {"name": "sell"}]
    outcomes = {quality(t): t["outcome"] for t in document["trajectories"]}
    assert outcomes == {0.1: "nothing changed", 0.2: "one order was cancelled"}
    assert "- Short is good." in llm.asked[0].messages[0]["content"]


def test_without_a_rubric_reaching_the_goal_counts() -> None:
    llm = Instant()
    judged(llm, group(0.1, 0.2))
    assert RUBRIC in llm.asked[0].messages[0]["content"]


def test_identical_trajectories_are_shown_once_and_share_a_score() -> None:
    llm = Instant()
    verdict = judged(llm, group(0.3, 0.9, 0.3, 0.9, 0.3))
    assert values(verdict) == [0.3, 0.9, 0.3, 0.9, 0.3]
    assert len(llm.asked) == 1 and sorted(order_of(llm.asked[0])) == [0.3, 0.9]


def test_trajectories_that_say_the_same_but_did_another_thing_are_not_identical() -> None:
    llm = Instant(then=scored(lambda block: 1.0 if block["outcome"] == "done" else 0.0))
    transcripts = group(0.5, context="done") + group(0.5, context="nothing changed")
    assert values(judged(llm, transcripts)) == [1.0, 0.0]


@pytest.mark.parametrize("qualities", [[], [0.7], [0.7, 0.7, 0.7]])
def test_with_nothing_to_compare_nobody_is_asked(qualities: list[float]) -> None:
    llm = Instant()
    assert values(judged(llm, group(*qualities))) == [0.5] * len(qualities)
    assert llm.asked == []


def test_the_order_follows_from_the_seed_and_does_not_depend_on_the_groups_own() -> None:
    qualities = [n / 10 for n in range(8)]

    def order(seed: int, qualities: list[float]) -> list[float]:
        llm = Instant()
        judged(llm, group(*qualities), seed=seed)
        return order_of(llm.asked[0])

    assert order(1, qualities) == order(1, qualities) == order(1, qualities[::-1])
    assert len({tuple(order(seed, qualities)) for seed in range(10)}) == 10
    firsts = [order(seed, qualities)[0] for seed in range(200)]
    assert min(firsts.count(q) for q in qualities) >= 10


def test_ids_are_new_in_every_call_and_unknown_to_whoever_lacks_the_secret() -> None:
    ids: list[str] = []
    for seed in range(5):
        llm = Instant()
        judged(llm, group(0.1, 0.2, 0.3), seed=seed, votes=2)
        ids += [id for ask in llm.asked for id in ask.ids]
    assert len(ids) == len(set(ids)) == 30
    assert all(id.startswith("t-") and len(id) == 18 for id in ids)


# ---------------------------------------------------------------- answers that cannot be used


def swapped(found: Entries) -> Entries:
    return found[::-1]


def without_one(found: Entries) -> Entries:
    return found[1:]


def one_twice(found: Entries) -> Entries:
    return [*found, found[0]]


def one_more(found: Entries) -> Entries:
    return [*found, {**found[0], "trajectory_id": "t-0123456789abcdef"}]


def renamed(found: Entries) -> Entries:
    return [{**e, "trajectory_id": str(n)} for n, e in enumerate(found)]


def with_score(score: float) -> Callable[[Entries], Entries]:
    return lambda found: [{**found[0], "score": score}, *found[1:]]


SPOILT = {
    "dropped": (scored(change=without_one), "there is no score for t-"),
    "twice": (scored(change=one_twice), "is scored twice"),
    "invented": (scored(change=one_more), "no trajectory with the id"),
    "renamed": (scored(change=renamed), "no trajectory with the id"),
    "too high": (scored(change=with_score(1.5)), "is not between 0 and 1"),
    "negative": (scored(change=with_score(-1.0)), "is not between 0 and 1"),
    "nan": (scored(change=with_score(float("nan"))), "is not between 0 and 1"),
    "truncated": (says('{"scores": [{"traj', finish="length"), "it was cut off"),
    "malformed": (says('{"scores": [}'), "is not JSON"),
    "a refusal": (says("I cannot help with that."), "is not JSON"),
    "silent": (says(""), "it is empty"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_the_judge_is_told_once_what_was_wrong(kind: str) -> None:
    step, words = SPOILT[kind]
    llm = Instant(step)
    assert values(judged(llm, group(0.2, 0.8, 0.4))) == [0.2, 0.8, 0.4]
    first, second = llm.asked
    assert second.messages[:2] == first.messages
    assert [m["role"] for m in second.messages[2:]] == ["assistant", "user"]
    assert words in second.messages[3]["content"]


@pytest.mark.parametrize("kind", SPOILT)
def test_the_second_time_there_is_no_score_for_anyone(kind: str) -> None:
    step, words = SPOILT[kind]
    llm = Instant(step, step)
    with pytest.raises(JudgeError, match="cannot be used, twice: ") as raised:
        judged(llm, group(0.2, 0.8, 0.4))
    assert words in str(raised.value) and len(llm.asked) == 2


def test_another_order_of_the_answer_and_a_fence_are_fine() -> None:
    llm = Instant(then=scored(change=swapped, wrap="Of course:\n```json\n{}\n```"))
    assert values(judged(llm, group(0.2, 0.8, 0.4))) == [0.2, 0.8, 0.4]
    assert len(llm.asked) == 1


def test_a_complaint_repeats_only_the_beginning_of_a_long_answer() -> None:
    llm = Instant(says("blah " * 100_000))
    judged(llm, group(0.2, 0.8))
    assert len(llm.asked[1].messages[2]["content"]) == 2000


def test_a_judge_that_does_not_answer_is_a_failure_of_the_group() -> None:
    def fails(ask: Ask) -> Any:
        raise LLMError("no answer within 5 s")

    with pytest.raises(JudgeError, match="no answer within 5 s"):
        judged(Instant(fails), group(0.2, 0.8))


def test_money_that_is_spent_is_not_a_failure_of_the_judge() -> None:
    def fails(ask: Ask) -> Any:
        raise BudgetError("spent")

    with pytest.raises(BudgetError):
        judged(Instant(fails), group(0.2, 0.8))


@pytest.mark.parametrize("depth", [600, 5000])
def test_a_message_that_is_nested_too_deeply_is_a_failure_of_its_group(depth: int) -> None:
    deep: Any = "quality 1"
    for _ in range(depth):
        deep = {"a": deep}
    transcripts = group(0.1)
    transcripts.append(Transcript(messages=[TASK, {"role": "tool", "content": deep}]))
    try:
        assert values(judged(Instant(), transcripts)) == [0.1, 1.0]
    except JudgeError as e:
        assert "nested too deeply" in str(e)


# ---------------------------------------------------------------- votes


def favours_first(ask: Ask) -> Any:
    """0.1 more for whoever is listed first."""
    first = ask.ids[0]
    return scored(lambda t: quality(t) + 0.1 * (t["id"] == first))(ask)


def bias(votes: int, num: int, seed: int) -> float:
    """How far the scores are from the truth at most, beside their siblings'."""
    rng = random.Random(seed)
    qualities = rng.sample([n / 100 for n in range(10, 80)], num)
    verdict = judged(Instant(then=favours_first), group(*qualities), votes=votes, seed=seed)
    gains = [v - q for v, q in zip(values(verdict), qualities, strict=True)]
    return max(abs(gain - statistics.fmean(gains)) for gain in gains)


@pytest.mark.parametrize("num", [2, 3, 4, 5, 8, 13, 16])
def test_four_votes_take_the_favour_from_the_first_listed(num: int) -> None:
    assert max(bias(4, num, seed) for seed in range(10)) < 0.03
    assert min(bias(1, num, seed) for seed in range(10)) > 0.04


@pytest.mark.parametrize("votes", [2, 3, 4, 8])
def test_nobody_is_listed_first_twice_before_all_have_been(votes: int) -> None:
    llm = Instant()
    judged(llm, group(*(n / 10 for n in range(8))), votes=votes)
    assert len(llm.asked) == len({order_of(ask)[0] for ask in llm.asked}) == votes


def test_votes_are_averaged_and_their_spread_is_told() -> None:
    votes = [scored(lambda t, n=n: quality(t) + n) for n in (0.0, 0.2)]
    verdict = judged(Instant(*votes), group(0.2, 0.6, 0.4), votes=2)
    assert values(verdict) == pytest.approx([0.3, 0.7, 0.5])
    assert verdict.spread == pytest.approx(0.1)


def test_one_failed_vote_fails_the_group() -> None:
    with pytest.raises(JudgeError):
        judged(Instant(scored(), says("x"), says("x")), group(0.2, 0.6), votes=2)


# ---------------------------------------------------------------- many, and long ones


def stretched(ask: Ask) -> Any:
    """A judge whose scale is another one in every call."""
    rng = random.Random("".join(ask.ids))
    slope, base = rng.uniform(0.4, 0.7), rng.uniform(0, 0.2)
    return scored(lambda t: base + slope * quality(t))(ask)


@pytest.mark.parametrize(("num", "size"), [(5, 4), (17, 16), (24, 8), (40, 16), (33, 4)])
def test_more_than_fit_into_a_call_are_each_scored_once_on_one_scale(num: int, size: int) -> None:
    llm = Instant(then=stretched)
    qualities = [0.3 + 0.4 * n / num for n in range(num)]
    found = values(judged(llm, group(*qualities), max_per_call=size))
    first = random.Random("".join(llm.asked[0].ids))
    slope, base = first.uniform(0.4, 0.7), first.uniform(0, 0.2)
    assert found == pytest.approx([base + slope * q for q in qualities])
    shown = Counter(q for ask in llm.asked for q in order_of(ask))
    assert len(shown) == num and sum(times > 1 for times in shown.values()) == 2
    assert all(len(ask.ids) <= size for ask in llm.asked)


def test_parts_without_a_scale_of_their_own_are_shifted_not_torn_apart() -> None:
    def flat(ask: Ask) -> Any:
        return scored(lambda t: 0.5)(ask)

    assert (
        values(judged(Instant(then=flat), group(*(n / 20 for n in range(12))), max_per_call=4))
        == [0.5] * 12
    )


def test_long_trajectories_are_rather_asked_in_parts_than_shortened() -> None:
    transcripts = [
        Transcript(messages=[*t.messages, {"role": "tool", "content": f"{n} row " * 1500}])
        for n, t in enumerate(group(*(n / 10 for n in range(10))))
    ]
    llm = Instant(room=25_000)
    assert values(judged(llm, transcripts)) == pytest.approx([n / 10 for n in range(10)])
    assert len(llm.asked) > 1
    assert all("left_out_characters" not in ask.text for ask in llm.asked)


def test_what_does_not_even_fit_in_parts_is_shortened_and_marked() -> None:
    transcripts = [
        Transcript(messages=[*t.messages, {"role": "tool", "content": f"{n} row " * 5000}])
        for n, t in enumerate(group(0.1, 0.2, 0.3, 0.4))
    ]
    llm = Instant(room=10_000)
    assert values(judged(llm, transcripts)) == [0.1, 0.2, 0.3, 0.4]
    assert llm.asked[0].text.count("left_out_characters") == 4
    assert len(llm.asked[0].raw) < 30_000


def test_a_group_that_cannot_fit_is_a_failure_that_says_what_to_set() -> None:
    transcripts = [
        Transcript(
            messages=[TASK, *({"role": "user", "content": f"{i}{n}" * 9} for i in range(99))]
        )
        for n in range(4)
    ]
    with pytest.raises(JudgeError, match="set max_input_tokens"):
        judged(Instant(room=2000), transcripts)


# ---------------------------------------------------------------- the cache


@pytest.mark.parametrize("votes", [1, 4])
def test_what_was_asked_before_is_not_asked_again(tmp_path: Path, votes: int) -> None:
    verdicts = []
    for calls in (votes, 0):
        llm = Instant(then=noisy())
        cache = AnswerCache(tmp_path)
        verdicts.append(judged(llm, group(0.2, 0.6, 0.4), cache=cache, votes=votes))
        assert (llm.usage.calls, llm.usage.cached) == (calls, votes - calls)
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("num", [2, 3])
def test_every_vote_is_kept_even_where_there_are_more_votes_than_orders(
    tmp_path: Path, num: int
) -> None:
    qualities = [0.2, 0.6, 0.4][:num]
    first, again = (
        judged(Instant(then=noisy()), group(*qualities), cache=AnswerCache(tmp_path), votes=8)
        for _ in range(2)
    )
    assert first == again


def noisy() -> Step:
    """A judge that never says the same twice."""
    rng = random.Random(0)
    return lambda ask: scored(lambda t: quality(t) + rng.uniform(0, 0.2))(ask)


@pytest.mark.parametrize("change", [{"rubric": "other"}, {"seed": 1}, {"llm": "other"}])
def test_another_question_is_asked(tmp_path: Path, change: dict[str, Any]) -> None:
    judged(Instant(), group(0.2, 0.6, 0.4), cache=AnswerCache(tmp_path))
    llm = Instant()
    llm.identity = change.pop("llm", "instant")
    judged(llm, group(0.2, 0.6, 0.4), cache=AnswerCache(tmp_path), **change)
    assert llm.usage.calls == 1


def test_an_answer_that_could_not_be_used_is_not_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(JudgeError):
            judged(Instant(then=says("x")), group(0.2, 0.6), cache=AnswerCache(tmp_path))
    llm = Instant(says("x"))
    judged(llm, group(0.2, 0.6), cache=AnswerCache(tmp_path))
    assert llm.usage.calls == 2
    judged(llm, group(0.2, 0.6), cache=AnswerCache(tmp_path))
    assert llm.usage.calls == 2


# ---------------------------------------------------------------- before the first rollout


def made(cfg: JudgeConfig, opening: list[Any], **more: Any) -> None:
    async def go() -> None:
        judge = await make_judge(cfg, 0, **more)
        try:
            await ask_once(judge, opening, [])
        finally:
            await judge.close()

    asyncio.run(go())


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_first_question_is_always_really_asked() -> None:
    with LoopbackJudge() as server:
        for num in (1, 2):
            made(JudgeConfig(model=server.model, api_base=server.api_base), [TASK])
            assert len(server.asked) == num and server.asked[-1].is_first_question


def test_a_judge_that_gives_no_scores_is_refused_before_the_start() -> None:
    with (
        LoopbackJudge(then=says("Hello!")) as server,
        pytest.raises(PreflightError, match=r"the judge cannot be used: .* is not JSON"),
    ):
        made(JudgeConfig(model=server.model, api_base=server.api_base), [TASK])


def test_a_judge_whose_context_is_too_small_for_the_task_is_refused_unasked() -> None:
    long = {"role": "system", "content": "policy " * 2000}
    with LoopbackJudge() as server:
        cfg = JudgeConfig(model=server.model, api_base=server.api_base, max_input_tokens=4000)
        with pytest.raises(PreflightError, match=r"reads 4000 tokens, and \d+ are needed"):
            made(cfg, [long, TASK])
        assert server.asked == []


def test_a_rubric_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "rubric.md").write_text("- Größe zählt.\n", encoding="utf-8")
    with LoopbackJudge() as server:
        file = str(tmp_path / "rubric.md")
        cfg = JudgeConfig(model=server.model, api_base=server.api_base, rubric_file=file)

        async def go() -> None:
            judge = await make_judge(cfg, 0)
            await judge.judge(group(0.1, 0.2))
            await judge.close()

        asyncio.run(go())
        assert "- Größe zählt." in server.asked[0].messages[0]["content"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_rubric_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "rubric.md"
    if content:
        file.write_bytes(content)
    cfg = JudgeConfig(model="openai/x", api_base="http://127.0.0.1:1", rubric_file=str(file))
    with pytest.raises(PreflightError, match=r"judge.rubric_file: cannot read .*rubric.md"):
        made(cfg, [TASK])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502</html>",
        b'{"error": {"message": "overloaded"}}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": ["4"]}}]}',
        b'{"choices": [{"message": {"content": "4", "tool_calls": [5]}}]}',
        b'{"choices": [{"message": {"content": "{\\"scores\\": [' + b"[" * 700 + b']}"}}]}',
        b'{"choices": [{"message": {"content": ' + b"[" * 900 + b"]" * 900 + b"}}]}",
        b'{"choices": ' + b"9" * 5000 + b"}",
        b'{"choices": [{"message": {"content": "\\ud800"}}]}',
    ],
)
def test_nothing_that_a_judge_sends_is_more_than_a_failed_judging(body: bytes) -> None:
    with LoopbackJudge(then=lambda ask: Answer(raw=body)) as server:
        cfg = JudgeConfig(model=server.model, api_base=server.api_base, retries=0)

        async def go() -> None:
            judge = await make_judge(cfg, 0)
            try:
                await judge.judge(group(0.1, 0.2))
            finally:
                await judge.close()

        with pytest.raises(JudgeError, match=r"openai/loopback( gave an answer that|: )"):
            asyncio.run(go())


def test_money_cannot_be_counted_without_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with pytest.raises(PreflightError, match="no price is known for openai/no-such-model"):
        made(JudgeConfig(model="openai/no-such-model", max_usd=1.0), [TASK])
    own = JudgeConfig(model="openai/x", api_base="http://127.0.0.1:1", max_usd=1.0)
    with pytest.raises(PreflightError, match=r"add prices: \{input"):  # it would never be spent
        made(own, [TASK])


def test_the_answer_is_asked_for_with_its_schema() -> None:
    with LoopbackJudge() as server:
        made(JudgeConfig(model=server.model, api_base=server.api_base), [TASK])
        form = server.asked[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"] == {
        "name": "answer",
        "strict": True,
        "schema": json.loads(json.dumps(SHAPE)),
    }
