"""Tokenizers with the special tokens and the chat template of real models, and a talk with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AddedToken, PreTrainedTokenizerFast

from art_cli.chat.render import Conversation, Renderer
from art_cli.types import Completion, Message

FAMILIES = Path(__file__).parent / "art_cli" / "templates" / "families"
TEXT = "You are a desk. Cancel order 17, it is late: look up the tool call, name and arguments. "
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>")
MISTRAL = (
    *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]", "[THINK]", "[/THINK]"),
)
GLM = ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>")
GLM = (*GLM, "<|observation|>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")
DEEPSEEK_CALLS = tuple(
    f"<｜tool▁{kind}▁{end}｜>"
    for kind in ("calls", "call", "outputs", "output")
    for end in ("begin", "end")
)
HARMONY = ("<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>")
HARMONY = (*HARMONY, "<|return|>", "<|call|>", "<|constrain|>")
KIMI = ("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>")
KIMI_CALLS = tuple(
    f"<|tool_{part}|>"
    for part in ("calls_section_begin", "calls_section_end", "call_begin", "call_end")
)
APERTUS = tuple(
    f"<|{kind}_{end}|>"
    for kind in ("system", "developer", "user", "assistant")
    for end in ("start", "end")
)
APERTUS_PARTS = ("<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>")
GEMMA4 = ("<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", '<|"|>')
GEMMA4 = (
    *GEMMA4,
    "<tool_response|>",
    "<|tool>",
    "<tool|>",
    "<|channel>",
    "<channel|>",
    "<|think|>",
)
LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>")
LLAMA = (*LLAMA, "<|eot_id|>", "<|eom_id|>", "<|python_tag|>")
LFM = tuple(
    f"<|tool_{kind}_{end}|>" for kind in ("list", "call", "response") for end in ("start", "end")
)
GRANITE = ("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChatModel:
    """What of a family is not in its template."""

    name: str
    special: tuple[str, ...]
    eos: str
    added: tuple[str, ...] = ()  # single tokens that are not special
    bos: str | None = None
    more_eos: tuple[str, ...] = ()  # that its generation config names
    file: str = ""  # of its template, below a folder
    args: dict[str, Any] = field(default_factory=dict)

    def template(self, folder: Path = FAMILIES) -> str:
        return (folder / (self.file or f"{self.name}.jinja")).read_text(encoding="utf-8")

    def tokenizer(self, template: str) -> PreTrainedTokenizerFast:
        """Return a small byte-level tokenizer that knows the family's own tokens."""
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        bpe.decoder = decoders.ByteLevel()  # type: ignore[assignment]
        special = list(dict.fromkeys((*self.special, self.eos)))
        trainer = trainers.BpeTrainer(
            vocab_size=400 + len(special),
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        bpe.train_from_iterator([TEXT], trainer)
        bpe.add_tokens([AddedToken(t, special=False, normalized=False) for t in self.added])
        return PreTrainedTokenizerFast(
            tokenizer_object=bpe,
            bos_token=self.bos,
            eos_token=self.eos,
            additional_special_tokens=special,
            chat_template=template,
        )

    def renderer(self, tools: list[Any] | None, folder: Path = FAMILIES, **more: Any) -> Renderer:
        """Return the family's, which is made once, with these tools; or a new one."""
        if not more:
            return _plain_renderer(self, folder).offering(tools)
        return self._renderer(tools, folder, **more)

    def _renderer(self, tools: list[Any] | None, folder: Path, **more: Any) -> Renderer:
        tokenizer = self.tokenizer(self.template(folder))
        ends: Any = tokenizer.convert_tokens_to_ids(list(self.more_eos))
        return Renderer(tokenizer, tools, ends, template_args=self.args, **more)


@cache
def _plain_renderer(model: ChatModel, folder: Path) -> Renderer:
    return model._renderer(None, folder)


def qwen(name: str, **more: Any) -> ChatModel:
    return ChatModel(
        name=name, special=CHATML, added=QWEN, eos="<|im_end|>", more_eos=CHATML[:1], **more
    )


def mistral(name: str) -> ChatModel:
    return ChatModel(name=name, special=MISTRAL, eos="</s>", bos="<s>")


def glm(name: str) -> ChatModel:
    tags = (*QWEN, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    ends = ("<|user|>", "<|observation|>")
    return ChatModel(name=name, special=GLM, added=tags, eos="<|endoftext|>", more_eos=ends)


def deepseek(name: str, **more: Any) -> ChatModel:
    added = (*DEEPSEEK_CALLS, "<｜tool▁sep｜>", "｜DSML｜", "<think>", "</think>")
    end = DEEPSEEK[1]
    return ChatModel(name=name, special=DEEPSEEK[:2], added=added, eos=end, bos=DEEPSEEK[0], **more)


SHIPPED = (
    qwen("qwen2.5"),
    qwen("qwen3"),
    qwen("qwen3-2507"),
    qwen("qwen3-coder"),
    qwen("qwen3.5"),
    qwen("qwen3.6"),
    qwen("mimo-vl"),
    qwen("step-3.5-flash"),
    mistral("mistral-nemo"),
    mistral("mistral-small-3.2"),
    mistral("devstral-2507"),
    mistral("ministral-3"),
    glm("glm-4.6"),
    glm("glm-4.7-flash"),
    deepseek("deepseek-v3"),
    deepseek("deepseek-v3.1"),
    deepseek("deepseek-v3.2", args={"thinking": True}),
    deepseek("deepseek-r1-distill"),
    ChatModel(
        name="gpt-oss",
        special=HARMONY,
        eos="<|return|>",
        bos="<|startoftext|>",
        more_eos=("<|endoftext|>", "<|call|>"),
    ),
    ChatModel(name="granite-3.3", special=GRANITE, eos="<|end_of_text|>"),
    ChatModel(name="granite-4.0", special=(*GRANITE, *QWEN[:2]), eos="<|end_of_text|>"),
    ChatModel(name="smollm3", special=CHATML, added=QWEN, eos="<|im_end|>"),
    ChatModel(
        name="phi-3.5-mini",
        special=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        eos="<|endoftext|>",
        more_eos=("<|end|>",),
    ),
    ChatModel(
        name="kimi-k2",
        special=(*KIMI, "<|im_middle|>"),
        added=(*KIMI_CALLS, "<|tool_call_argument_begin|>"),
        eos="<|im_end|>",
        bos="[BOS]",
        more_eos=("[EOS]",),
    ),
    ChatModel(
        name="minimax-m2",
        special=("]~!b[", "]~b]", "[e~["),
        added=("<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"),
        eos="[e~[",
        bos="]~!b[",
    ),
    ChatModel(
        name="seed-oss",
        special=("<seed:bos>", "<seed:eos>"),
        added=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
        eos="<seed:eos>",
        bos="<seed:bos>",
    ),
    ChatModel(
        name="apertus",
        special=("<s>", *APERTUS, *APERTUS_PARTS),
        eos="<|assistant_end|>",
        bos="<s>",
        more_eos=("<|tools_suffix|>",),
    ),
)
BY_NAME = {model.name: model for model in SHIPPED}

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "cancel",
            "description": "Cancel an order.",
            "parameters": {
                "type": "object",
                "properties": {
                    "order": {"type": "integer", "description": "its number"},
                    "why": {"type": "string", "description": "a reason"},
                    "more": {"type": "object", "description": "what else is known"},
                    "now": {"type": "boolean", "description": "at once"},
                    "tags": {"type": "array", "items": {"type": "string"}, "description": "words"},
                },
                "required": ["order"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look an order up.",
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "string", "description": "its number"}},
                "required": ["order"],
            },
        },
    },
]
SYSTEM: Message = {"role": "system", "content": "You are a desk."}
ASK: Message = {"role": "user", "content": "Cancel order 17."}


def call(tool: str, **arguments: Any) -> str:
    """Return a call in the text form."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def result(text: str) -> Message:
    return {"role": "tool", "content": text}


class Talk:
    """A conversation whose turns a model is made to say; what must always hold is asserted."""

    def __init__(self, renderer: Renderer, *opening: Message) -> None:
        self.renderer = renderer
        self.conversation = Conversation(renderer)
        self.sampled: list[list[int]] = []
        self.hear(*(opening or (SYSTEM, ASK)))

    @property
    def forks(self) -> int:
        return len(self.conversation.sequences) - 1

    def hear(self, *messages: Message) -> None:
        self.conversation.add_messages(list(messages))

    def say(self, text: str) -> str:
        """Say a turn that is given in the text form. Return it in the model's own words."""
        return self.say_ids(self.conversation.spoken_as(text))

    def say_own(self, text: str, end: str | None = None) -> str:
        """Say the model's own words, and what ends them."""
        end = self.renderer.end_of_turn if end is None else end
        return self.say_ids(list(self.renderer.encode(text + end)))

    def say_ids(self, ids: list[int]) -> str:
        self.sampled.append(ids)
        logprobs = [-1.0 - n for n in range(len(ids))]
        completion = Completion(
            token_ids=ids, logprobs=logprobs, finish_reason="stop", policy_version=0
        )
        return self.conversation.add_completion(completion)

    def check(self) -> None:
        """Assert that what was sampled is trained on, once, with its own log-probabilities."""
        trained: list[int] = []
        logprobs: list[float] = []
        for s in self.conversation.sequences:
            assert len(s.ids) == len(s.mask) == len(s.engine_logprobs)
            trained += [i for i, m in zip(s.ids, s.mask, strict=True) if m]
            logprobs += [p for p, m in zip(s.engine_logprobs, s.mask, strict=True) if m]
            assert not any(p for p, m in zip(s.engine_logprobs, s.mask, strict=True) if not m)
        assert trained == [i for ids in self.sampled for i in ids]
        assert logprobs == [-1.0 - n for ids in self.sampled for n in range(len(ids))]

    def is_whole(self) -> bool:
        """Return whether the ids are those of the conversation, rendered as a whole."""
        whole = self.renderer.text(self.conversation.said)
        return self.conversation.ids == list(self.renderer.encode(whole))
