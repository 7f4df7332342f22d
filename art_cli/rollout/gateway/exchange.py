"""Reading of one request into a conversation, and the turn that answers it."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from dataclasses import replace

from art_cli.chat.openai_format import calls_as_text, words_and_calls
from art_cli.chat.plain_text import PlainText
from art_cli.chat.render import Conversation, Renderer
from art_cli.chat.too_long import TooLongError
from art_cli.chat.turns import Turn, WrittenCall
from art_cli.errors import UsageError
from art_cli.rollout.gateway.asked import CONTEXT, Answered, AnsweredCall, Asked, RequestError
from art_cli.system.deadline import beside
from art_cli.types import Completion, Message

COUNTED = 8  # times `max_model_len`: longer requests are refused without counting


Talk = Conversation | PlainText


def begin(renderer: Renderer, asked: Asked) -> Talk:
    """Return an empty conversation, or plain text, for a request."""
    return Conversation(renderer) if asked.raw is None else PlainText(renderer)


async def read_in(talk: Talk, messages: list[Message], asked: Asked, room: int) -> int:
    """Add the new messages of a request to a conversation. Return its number of tokens.

    Raises RequestError if the template refuses the messages, or they leave no room for an answer.
    The conversation is then unchanged.
    """
    try:
        if isinstance(talk, PlainText):
            assert asked.raw is not None
            await beside(asked.size, talk.add, asked.raw, room)
        else:
            opening = asked.prefill + _opening(talk, asked)
            await beside(asked.size, talk.add_messages, messages, opening, room)
    except UsageError as e:  # from the template, which clients of other models do not know
        raise RequestError(400, str(e)) from None
    except TooLongError as e:
        raise _too_long(str(e), room) from None
    return len(talk.ids)


async def count_tokens(renderer: Renderer, asked: Asked, room: int) -> int:
    """Return the number of tokens of a request without earlier ones. Raises RequestError."""
    return await read_in(begin(renderer, asked), asked.messages, asked, COUNTED * room)


def answer(
    talk: Talk, renderer: Renderer, sampled: Completion, asked: Asked, num_prompt: int
) -> Answered:
    """Add a sampled turn to its conversation. Return it in the form that its client receives.

    Calls and thinking are separated from the text. A malformed call stays in the text, as on other
    servers. A turn that was cut off makes no calls, as in the built-in agent. If only one call is
    allowed, the turn ends after the first: tokens that the client does not see are dropped.
    """
    opening = _opening(talk, asked)
    begun = talk.begun[: len(talk.begun) - len(opening)]  # by the client
    if asked.tools and not asked.parallel:
        sampled = _up_to_first_call(renderer, sampled, opening)
    text = talk.add_completion(sampled)
    stop, shown = _cut(text[len(talk.begun) :], asked.stops)
    with_calls = bool(asked.tools) and sampled.finish_reason != "length"
    plain = Turn(thought="", said=shown, pieces=(shown,))
    turn = renderer.read(opening + shown) if asked.raw is None else plain
    if with_calls and begun and renderer.read(begun).written:
        turn = _behind(renderer.read(begun), renderer.read(begun + opening + shown))
    words, calls = words_and_calls(turn, with_tools=with_calls)
    return Answered(
        words=words,
        thought=turn.thought,
        calls=tuple(AnsweredCall(id=f"call_{secrets.token_hex(8)}", **c) for c in calls),
        ended=sampled.finish_reason,
        stop=stop,
        completion=sampled,
        tokens=[renderer.decode([i]) for i in sampled.token_ids] if asked.logprobs else [],
        likeliest=_likeliest(renderer, sampled, asked),
        num_prompt=num_prompt,
        num_thought=_num_thought(renderer, turn, sampled.token_ids),
    )


def _opening(talk: Talk, asked: Asked) -> str:
    """Return the text that begins a turn that must call a tool."""
    if not asked.must_call or not isinstance(talk, Conversation):
        return ""
    return talk.opening(asked.forced_tool)


def echoed(answer: Answered, prefill: str) -> Message:
    """Return a turn in the form in which its client sends it back in later requests."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in answer.calls]
    words = f"{prefill}{answer.words}"
    return {"role": "assistant", "content": words + calls_as_text(calls)}


def _behind(begun: Turn, whole: Turn) -> Turn:
    """Return a turn without the beginning that its client wrote, and without calls in there."""
    first, *rest = whole.pieces
    if isinstance(first, str):
        first = first.removeprefix(begun.words)
    return replace(whole, thought="" if begun.thought else whole.thought, pieces=(first, *rest))


def _up_to_first_call(renderer: Renderer, sampled: Completion, opening: str) -> Completion:
    """Return a turn without the tokens after its first call, if another call follows.

    The result equals sampling that stopped there.
    """
    ids = sampled.token_ids
    text = opening + renderer.decode(ids)
    end = _end_of_first_call(renderer, text)
    if end is None:
        return sampled

    def length(num: int) -> int:
        return len(opening) + len(renderer.decode(ids[:num]))

    num = bisect_left(range(len(ids)), end, key=length)
    return replace(
        sampled,
        token_ids=ids[:num],
        logprobs=sampled.logprobs[:num],
        forced=frozenset(place for place in sampled.forced if place < num),
        top_logprobs=sampled.top_logprobs[:num],
        finish_reason="stop",
    )


def _end_of_first_call(renderer: Renderer, text: str) -> int | None:
    """Return the offset at which the first well-formed call ends, if another one follows."""
    end = (
        text.rfind(renderer.capabilities.output_format.tags[1]) + 1
    )  # calls come after the thinking
    found = None
    for piece in renderer.read(text).pieces:
        if found is not None and isinstance(piece, WrittenCall):
            return found
        written = piece if isinstance(piece, str) else piece.text
        begin = text.find(written, end)
        if begin < 0:
            return None
        end = begin + len(written)
        if found is None and isinstance(piece, WrittenCall) and not isinstance(piece.call, str):
            found = end
    return None


def _likeliest(renderer: Renderer, sampled: Completion, asked: Asked) -> list[dict[str, float]]:
    """Return the likeliest tokens at each position; at least the sampled one."""
    if not asked.top_logprobs:
        return []
    pairs = zip(sampled.token_ids, sampled.logprobs, strict=True)
    given = sampled.top_logprobs or [{i: p} for i, p in pairs]
    return [{renderer.decode([i]): p for i, p in tokens.items()} for tokens in given]


def _num_thought(renderer: Renderer, turn: Turn, ids: list[int]) -> int:
    """Return the number of a turn's tokens that are thinking."""
    if not turn.thought:
        return 0
    closing = renderer.encode(renderer.capabilities.output_format.tags[1])
    if len(closing) == 1 and closing[0] in ids:
        return ids.index(closing[0]) + 1
    return min(len(renderer.encode(turn.thought)), len(ids))


def _cut(text: str, stops: tuple[str, ...]) -> tuple[str | None, str]:
    """Return the first stop text and the text before it, which is all that the client sees."""
    found = [(i, stop) for stop in stops if (i := text.find(stop)) >= 0]
    if not found:
        return None, text
    begin, stop = min(found)
    return stop, text[:begin]


def _too_long(length: str, room: int) -> RequestError:
    text = f"the messages are {length}, and there is room for {room}"
    return RequestError(400, text, CONTEXT)
