"""`model.base: tiny`: a small language model created without any download.

It is a Qwen3-architecture transformer with random weights, and a byte-level BPE tokenizer trained
on the env's own texts. SFT on demonstrations must teach it everything.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from art_cli.config.sections.model import TinyConfig

END_OF_TEXT, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# ChatML, like Qwen's. Each tool is one line (name, arguments, description) instead of a JSON
# schema, which is too complex for a model of this size. Calls that an API stores apart from the
# text are rendered after it, as they are sampled.
CHAT_TEMPLATE = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}
{{- ' ' if m.content and loop.first }}
{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}</tool_call>' }}
{%- endfor %}
{%- if loop.first and tools %}
{{- '\\n<tools>' }}
{%- for t in tools %}
{{- '\\n' + t.function.name + ' ' + t.function.parameters.properties | join(' ') }}
{{- ': ' + t.function.description }}
{%- endfor %}
{{- '\\n</tools>\\n<tool_call>{"name": "", "arguments": {}}</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def make(
    cfg: TinyConfig, texts: Iterable[str], seed: int
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Return a new model and tokenizer, determined by the texts and the seed."""
    tokenizer = _tokenizer(texts, cfg.vocab_size)
    heads = max(2, cfg.hidden_size // 32)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=cfg.hidden_size,
        num_hidden_layers=cfg.num_layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=cfg.hidden_size // heads,
        intermediate_size=3 * cfg.hidden_size,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        # Larger than transformers' 0.02, which is meant for wide models and learns slowly here.
        initializer_range=0.6 / cfg.hidden_size**0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.backend_tokenizer.token_to_id(END_OF_TURN),
        pad_token_id=tokenizer.backend_tokenizer.token_to_id(END_OF_TEXT),
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(config), tokenizer


def _tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)  # type: ignore[assignment]
    bpe.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT, TURN, END_OF_TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN],
        chat_template=CHAT_TEMPLATE,
    )
