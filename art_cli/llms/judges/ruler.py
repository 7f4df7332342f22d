"""RULER: a judge sees all trajectories of a group in one call and scores them relatively.

After OpenPipe's RULER (corbt.com/posts/ruler). A group that cannot be judged raises JudgeError and
never gets a made-up score; the caller decides what to do.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from art_cli.errors import JudgeError, LLMError, PreflightError
from art_cli.llms.base import (
    BYTES_PER_TOKEN,
    LLM,
    QUESTION,
    ChatMessage,
    Usage,
    estimate_tokens,
)
from art_cli.llms.judges.answer import SHAPE, AnswerError, bounded_schema, parse_answer
from art_cli.llms.judges.base import Score, Transcript, Verdict
from art_cli.llms.judges.cache import AnswerCache
from art_cli.llms.judges.prompt import (
    RUBRIC,
    GroupTooLongError,
    chat,
    document,
    split_opening,
    union_of_tools,
)
from art_cli.system.deadline import beside

FEWEST_PER_CALL = 4  # trajectories: two anchors and two new ones
LEAST_TOKENS = 50  # per trajectory, or it is not worth judging
ANSWER_TOKENS = 120  # per trajectory, in the answer
SHOWN = 2000  # characters of a bad answer that are shown to the judge
NARROW = 0.05  # anchors with closer scores do not determine the scale


class Ruler:
    """The RULER judge; implements `Judge`."""

    def __init__(
        self,
        llm: LLM,
        *,
        rubric: str | None = None,
        votes: int = 1,
        max_per_call: int = 16,
        cache: AnswerCache | None = None,
        seed: int = 0,
    ) -> None:
        """The default `rubric` rewards the goal, then efficiency. `seed` shuffles orders."""
        self.llm = llm
        self._rubric = rubric or RUBRIC
        self._votes = votes
        self._max_per_call = max_per_call
        self._seed = seed
        self._cache = cache or AnswerCache(None)

    @property
    def usage(self) -> Usage:
        return self.llm.usage

    @property
    def spent(self) -> float:
        return self.llm.spent

    async def judge(self, transcripts: Sequence[Transcript]) -> Verdict:
        """See `Judge`. Identical trajectories are shown once and share their score."""
        texts = [m.get("content") for t in transcripts for m in t.messages if isinstance(m, dict)]
        size = sum(len(text) for text in texts if isinstance(text, str))
        try:
            group = await beside(size, _Group.of, transcripts)
        except RecursionError:
            raise JudgeError("a message is nested too deeply to be shown to a judge") from None
        num = len(group.rests)
        if num < 2:
            alone = Score(score=0.5, explanation="there is nothing else to compare it with")
            return Verdict(scores=[alone for _ in transcripts])
        circle = _shuffled(group.digests, self._seed)
        orders = [_order(circle, vote, self._votes) for vote in range(self._votes)]
        votes = await asyncio.gather(*(self._scored(group, *each) for each in enumerate(orders)))
        scores = [_mean([vote[n] for vote in votes]) for n in range(num)]
        return Verdict(
            scores=[scores[n] for n in group.index],
            votes=[[vote[n].score for n in group.index] for vote in votes],
            orders=[[group.index.index(n) for n in order] for order in orders],
        )

    async def close(self) -> None:
        await self.llm.close()

    def check_room(self, opening: list[Any], tools: list[Any]) -> None:
        """Check that a group with this opening fits at all. Raises PreflightError."""
        needed = estimate_tokens(json.dumps([opening, tools], default=str))
        needed += FEWEST_PER_CALL * LEAST_TOKENS
        room = self._room(FEWEST_PER_CALL)
        if room < needed:
            raise PreflightError(
                f"the judge {self.llm.name} reads {self.llm.max_input_tokens} tokens, and "
                f"{self.llm.max_input_tokens - room + needed} are needed for its instructions, "
                f"the rubric, the task's opening and tools, and {FEWEST_PER_CALL} short "
                "trajectories; take one with a longer context, or set max_input_tokens if it has"
            )

    async def ping(self) -> None:
        answers = [[QUESTION, {"role": "assistant", "content": text}] for text in ("4", "5")]
        await Ruler(self.llm).judge([Transcript(messages=m) for m in answers])

    async def _scored(self, group: _Group, vote: int, order: list[int]) -> dict[int, Score]:
        """Return one vote: the score of each distinct trajectory, from as many calls as needed."""
        size = self._per_call(group, len(order))
        first = await self._call(group, vote, order[:size])
        rest = order[size:]
        if not rest:
            return first
        # The worst and the best trajectory of the first call are anchors: they are shown again in
        # every other call, to map its scale to that of the first.
        ranked = sorted(first, key=lambda n: first[n].score)
        low, high = ranked[0], ranked[-1]
        chunks = [rest[i : i + size - 2] for i in range(0, len(rest), size - 2)]
        # Anchors stand in the middle: judges are known to favor the first and last places.
        parts = [[*c[: len(c) // 2], low, high, *c[len(c) // 2 :]] for c in chunks]
        calls = await asyncio.gather(*(self._call(group, vote, part) for part in parts))
        out = dict(first)
        for scores in calls:
            to_first = _scale(scores[low].score, scores[high].score, first[low], first[high])
            for n, s in scores.items():
                if n not in (low, high):
                    out[n] = Score(score=to_first(s.score), explanation=s.explanation)
        return out

    def _per_call(self, group: _Group, num: int) -> int:
        """Return the number of trajectories per call: rather fewer than shortened ones."""
        size = min(num, self._max_per_call)
        while size > FEWEST_PER_CALL and group.tokens_of(size) > self._room(size):
            size -= 1
        return size

    def _room(self, size: int) -> int:
        """Return the tokens left for the document in the judge's context."""
        fixed = estimate_tokens(chat(self._rubric, "")[0]["content"])
        answer = min(ANSWER_TOKENS * size, self.llm.max_input_tokens // 4)
        return self.llm.max_input_tokens - fixed - answer

    async def _call(self, group: _Group, vote: int, order: list[int]) -> dict[int, Score]:
        """Call the judge on these trajectories, in this order."""
        ids = self._ids(group, vote, order)
        parts = [(ids[n], group.rests[n], group.contexts[n]) for n in order]
        try:
            text = await beside(
                group.size, document, group.opening, group.tools, parts, self._room(len(order))
            )
        except GroupTooLongError as e:
            raise JudgeError(f"{self.llm.name}: {e}; set max_input_tokens if it is more") from None
        except RecursionError:
            raise JudgeError("a message is nested too deeply to be shown to a judge") from None
        scores = await self._answer(chat(self._rubric, text), list(ids.values()))
        return {n: scores[id] for n, id in ids.items()}

    def _ids(self, group: _Group, vote: int, order: list[int]) -> dict[int, str]:
        """Return ids of the trajectories that differ in every call, even for the same order."""
        call = b"".join([vote.to_bytes(4, "big"), *(group.digests[n] for n in order)])
        return {n: self._cache.id(call + group.digests[n]) for n in order}

    async def _answer(self, messages: list[ChatMessage], ids: list[str]) -> dict[str, Score]:
        """Return the scores, from the cache if possible, with one retry after a bad answer."""
        key = self._cache.key(self.llm.identity, messages)
        known = self._cache.get(key)
        if known is not None:
            try:
                scores = parse_answer(known, ids)
            except AnswerError:
                pass
            else:
                self.llm.usage.cached += 1
                return scores
        schema = bounded_schema(ids) if self.llm.takes_bounds else SHAPE
        for last in (False, True):
            try:
                reply = await self.llm.ask(messages, schema)
            except LLMError as e:
                raise JudgeError(str(e)) from e
            try:
                scores = parse_answer(reply.text, ids, reply.cut)
            except AnswerError as e:
                if last:
                    raise JudgeError(
                        f"{self.llm.name} gave an answer that cannot be used, twice: {e}"
                    ) from None
                messages = [*messages, *_complaint(reply.text, e)]
            else:
                self._cache.put(key, reply.text)
                return scores
        raise AssertionError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The distinct trajectories of a group, by number."""

    opening: list[Any]
    tools: list[Any]
    index: list[int]  # for each trajectory, its number among the distinct ones
    rests: list[list[Any]]  # messages after the opening
    contexts: list[str]
    digests: list[bytes]
    lengths: list[int]  # tokens
    fixed: int  # tokens of the shared parts

    @property
    def size(self) -> int:
        """The approximate number of characters."""
        return BYTES_PER_TOKEN * (self.fixed + sum(self.lengths))

    @classmethod
    def of(cls, transcripts: Sequence[Transcript]) -> _Group:
        opening, rests = split_opening(transcripts)
        tools = union_of_tools(transcripts)
        shared = json.dumps([opening, tools], default=str)
        seen: dict[str, int] = {}
        index: list[int] = []
        for rest, transcript in zip(rests, transcripts, strict=True):
            content = json.dumps([rest, transcript.context], default=str)
            index.append(seen.setdefault(content, len(seen)))
        firsts = [index.index(n) for n in range(len(seen))]
        return cls(
            opening=opening,
            tools=tools,
            index=index,
            rests=[rests[i] for i in firsts],
            contexts=[transcripts[i].context for i in firsts],
            digests=[hashlib.sha256((shared + content).encode()).digest() for content in seen],
            lengths=[estimate_tokens(content) for content in seen],
            fixed=estimate_tokens(shared),
        )

    def tokens_of(self, num: int) -> int:
        """Return the tokens of a document with the `num` longest trajectories."""
        return self.fixed + sum(sorted(self.lengths)[-num:])


def _shuffled(digests: list[bytes], seed: int) -> list[int]:
    """Return a random order, determined by the group and the seed."""
    salt = seed.to_bytes(8, "big")
    return sorted(range(len(digests)), key=lambda n: hashlib.sha256(salt + digests[n]).digest())


def _order(circle: list[int], vote: int, votes: int) -> list[int]:
    """Return the order in which one vote sees the trajectories.

    The orders start at different places of the circle, so that no trajectory is first twice before
    each was first once. Every other vote runs in the opposite direction.
    """
    start = vote * len(circle) // votes
    turned = circle[start:] + circle[:start]
    return [turned[0], *reversed(turned[1:])] if vote % 2 else turned


def _mean(votes: list[Score]) -> Score:
    """Return the mean score, with the explanation of the nearest vote."""
    mean = statistics.fmean(s.score for s in votes)
    nearest = min(votes, key=lambda s: abs(s.score - mean))
    return Score(score=mean, explanation=nearest.explanation)


def _scale(low: float, high: float, to_low: Score, to_high: Score) -> Any:
    """Return a function that maps scores so that two anchors get the scores `to_low` and `to_high`.

    It is linear through both anchors if they are far enough apart, else a shift of their mean.
    """
    a, b = to_low.score, to_high.score
    if b - a > NARROW and high - low > NARROW:
        slope, base = (b - a) / (high - low), low
    else:
        slope, base, a = 1.0, (low + high) / 2, (a + b) / 2
    return lambda score: min(1.0, max(0.0, a + (score - base) * slope))


def _complaint(answer: str, error: AnswerError) -> list[ChatMessage]:
    text = answer[:SHOWN].encode(errors="replace").decode()  # a lone surrogate cannot be sent
    return [
        {"role": "assistant", "content": text or "(empty)"},
        {
            "role": "user",
            "content": f"That answer cannot be used: {error}. Answer again, with the JSON only: "
            "one entry for each trajectory, its id exactly as given, its score between 0 and 1.",
        },
    ]
