"""Checks of a base's own tokenizer and chat template on a conversation with tools."""

from __future__ import annotations

import json
from collections.abc import Iterator

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from art_cli.chat.render import Conversation, Renderer
from art_cli.chat.turns import call_text, parse_tool_calls
from art_cli.config.sections.model import ModelConfig
from art_cli.preflight.base_model import ANY_TOOL, eos_of, of_tokenizer
from art_cli.preflight.certify.specimen import Trial
from art_cli.types import Completion, Message, ToolCall

CALL = ToolCall(name="look_up", arguments={"order": 17, "note": 'it says "late"\n'})
TURNS = 4


def check_conversation(
    base: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Trial]:
    """Simulate a conversation of several turns with a tool call in each, without a model."""
    wrong = [
        f
        for f in of_tokenizer(ModelConfig(base=base), config, tokenizer, [ANY_TOOL])
        if f.status == "failed"
    ]
    for result in wrong:
        yield Trial(name="tokenizer", status="failed", what=f"{result.what}; {result.todo}")
    if wrong:
        return
    pad = "none, and none is needed" if tokenizer.pad_token is None else repr(tokenizer.pad_token)
    yield Trial(name="tokenizer", status="passed", what=f"{len(tokenizer)} tokens; to pad: {pad}")
    renderer = Renderer(tokenizer, [ANY_TOOL], eos_of(base, config))
    yield _stops(renderer, tokenizer)
    shown = "in the system message" if renderer.tools_by_hand else "by the template"
    called = renderer.capabilities.output_format.format.name
    results = "in its role for them" if renderer.has_tool_role else "as user messages"
    yield Trial(
        name="tools",
        status="passed",
        what=f"described {shown}, called as {called}; results are shown {results}",
    )
    talk = Conversation(renderer)
    sampled, read = _play(talk)
    yield _call(read)
    yield _masks(talk, sampled)
    yield _forks(talk)


def _stops(renderer: Renderer, tokenizer: PreTrainedTokenizerBase) -> Trial:
    ids = sorted(renderer.stop_ids)
    ends = zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
    names = [token or f"{id} (which its tokenizer does not have)" for id, token in ends]
    return Trial(name="stop tokens", status="passed", what=f"a turn ends with {', '.join(names)}")


def _play(talk: Conversation) -> tuple[int, list[str]]:
    """Return the number of sampled tokens, and the turns as they were parsed back."""
    order: Message = {"role": "user", "content": "Where is order 17?"}
    talk.add_messages([{"role": "system", "content": "You are a desk."}, order])
    num, read = 0, []
    call = call_text(CALL["name"], json.dumps(CALL["arguments"]))
    for turn in range(TURNS):
        ids = talk.spoken_as(f"I look {turn}. {call}")
        num += len(ids)
        completion = Completion(
            token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop", policy_version=0
        )
        talk.add_completion(completion)
        read.append(talk.messages[-1]["content"])
        talk.add_messages([{"role": "tool", "content": f"late by {turn} days"}])
    return num, read


def _call(read: list[str]) -> Trial:
    """Check that the sampled call is parsed back unchanged."""
    for text in read:
        found = parse_tool_calls(text)
        if found != [CALL]:
            what = f"a call came back as {found!r:.200}"
            return Trial(name="tool call", status="failed", what=what)
    return Trial(name="tool call", status="passed", what=f"{len(read)} calls there and back")


def _masks(talk: Conversation, sampled: int) -> Trial:
    """Check that all sampled tokens are trained on exactly once, and no others."""
    trained = sum(sum(sequence.mask) for sequence in talk.sequences)
    if trained != sampled:
        what = f"{trained} tokens would be trained on, and {sampled} were sampled"
        return Trial(name="mask", status="failed", what=what)
    what = f"the {sampled} tokens that were sampled are trained on, and no other"
    return Trial(name="mask", status="passed", what=what)


def _forks(talk: Conversation) -> Trial:
    num, read = len(talk.sequences), sum(len(s.ids) for s in talk.sequences)
    if num == 1:
        what = f"{TURNS} turns are one sequence of {read} tokens"
    else:
        what = (
            f"{TURNS} turns are {num} sequences ({read} tokens): the template rewrites what was "
            "said before"
        )
    return Trial(name="forks", status="passed", what=what)
