"""One request read into a conversation, and the turn that answers it."""

from __future__ import annotations

import secrets

from art_cli.errors import UsageError
from art_cli.models.openai_format import calls_as_text, words_and_calls
from art_cli.models.render import Conversation, Renderer, TooLongError
from art_cli.rollout.gateway.asked import CONTEXT, Answered, AnsweredCall, Asked, RequestError
from art_cli.system.deadline import beside
from art_cli.types import Completion, Message


async def read_in(talk: Conversation, messages: list[Message], asked: Asked, room: int) -> int:
    """Add what a request says beyond a conversation. Return the number of tokens of all of it.

    Raises RequestError where the template refuses it, or there is no room to answer; the
    conversation is then as it was.
    """
    try:
        opening = talk.opening(asked.forced_tool) if asked.must_call else ""
        await beside(asked.size, talk.add_messages, messages, opening, room)
    except UsageError as e:  # the template, which other models' users do not know of
        raise RequestError(400, str(e)) from None
    except TooLongError as e:
        raise _too_long(str(e), room) from None
    return len(talk.ids)


def answer(
    talk: Conversation, renderer: Renderer, completion: Completion, asked: Asked, num_prompt: int
) -> Answered:
    """Add a turn that was sampled to its conversation. Return what its client sees of it.

    Its calls stand apart, and its thinking; a call that is malformed stays among the words, as
    other servers leave it. A turn that was cut off makes no calls, as in the built-in agent.
    """
    turn = renderer.read(cut(talk.add_completion(completion), asked.stops))
    with_tools = bool(asked.tools) and completion.finish_reason != "length"
    words, calls = words_and_calls(turn, with_tools=with_tools)
    return Answered(
        words=words,
        thought=turn.thought,
        calls=tuple(AnsweredCall(id=f"call_{secrets.token_hex(8)}", **c) for c in calls),
        ended=completion.finish_reason,
        completion=completion,
        tokens=[renderer.decode([i]) for i in completion.token_ids] if asked.logprobs else [],
        num_prompt=num_prompt,
    )


def echoed(answer: Answered) -> Message:
    """Return a turn as its client is to send it back in the next request's history."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in answer.calls]
    return {"role": "assistant", "content": answer.words + calls_as_text(calls)}


def cut(text: str, stops: tuple[str, ...]) -> str:
    """Return what stands before the first stop text, which the program is not shown."""
    return text[: min((i for s in stops if (i := text.find(s)) >= 0), default=len(text))]


def _too_long(length: str, room: int) -> RequestError:
    text = f"the messages are {length}, and there is room for {room}"
    return RequestError(400, text, CONTEXT)
