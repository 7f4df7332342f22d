"""Grammars compiled for a tokenizer, and the tokens that they allow, with llguidance.

A grammar and the sampled tokens determine the allowed tokens at each position. A trajectory stores
only the grammar, and the masks are recomputed when needed.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer
from torch import Tensor

from art_cli.errors import ConstraintError
from art_cli.system.bounded_cache import Recent
from art_cli.system.deadline import DeadlineError, call

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COMPILE_TIMEOUT = 20.0  # seconds
CACHED = 2**28  # bytes of compiled grammars
COMPILED = 2**17, 256  # estimated bytes of a compiled grammar: minimum, and per character
AT_ONCE = 2**28  # bytes of masks
WORD = 32  # tokens per int32 of a mask


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer in the form that llguidance needs: plain values that ranks can exchange."""

    tokenizer: str  # JSON of the tokenizers library; "" if there is none
    eos: int
    size: int  # size of the logits

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, size: int) -> Vocabulary:
        """Return the vocabulary of a model with `size` logits per position."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return cls("", 0, size)
        plain = type(backend).from_str(backend.to_str())
        plain.no_padding()
        plain.no_truncation()
        eos = tokenizer.eos_token_id
        return cls(plain.to_str(), eos if isinstance(eos, int) else 0, max(size, len(tokenizer)))


class Grammars:
    """Compiles grammars, each only once, and computes masks. Threads may share an instance."""

    def __init__(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """`vocabulary` is called when it is first needed, because it is slow."""
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        least, each = COMPILED
        self._compiled = Recent(
            self._compile, lambda grammar, _: least + each * len(grammar), CACHED
        )

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that grammars are compiled for."""
        return self._vocabulary()

    @cached_property
    def specials(self) -> dict[str, int]:
        """The tokens that llguidance treats as special, which no text in a grammar can match.

        It includes more than the tokenizer's own special tokens: for example, always <think>.
        """
        added = json.loads(self.vocabulary.tokenizer or "{}").get("added_tokens", [])
        known = [(t["content"], t["id"]) for t in added]
        return {text: id for text, id in known if self._tokenizer.is_special_token(id)}

    async def compile(self, grammar: str) -> None:
        """Compile a grammar in a thread.

        Raises ConstraintError if it is not supported, or takes more than COMPILE_TIMEOUT.
        """
        try:
            await call(self._compiled, grammar, seconds=COMPILE_TIMEOUT, what="compiling a grammar")
        except DeadlineError:
            raise ConstraintError(
                f"the JSON schema takes more than {COMPILE_TIMEOUT:g} s to compile; make it simpler"
            ) from None

    def start(self, grammar: str) -> LLMatcher:
        """Return a matcher that reads a turn under a grammar. Raises ConstraintError."""
        return self._compiled(grammar).deep_copy()

    def masks(self, matchers: list[LLMatcher]) -> Tensor:
        """Return the tokens that each matcher allows next [R, W] int32: one bit per token."""
        bits = torch.zeros(len(matchers), self._words, dtype=torch.int32)
        jobs = list(zip(matchers, range(len(matchers)), strict=True))
        self._executor.unsafe_compute_mask_ptr(
            jobs, bits.data_ptr(), self._words * 4, len(matchers)
        )
        return bits

    def replay(self, turns: list[tuple[str, list[int]]]) -> Iterator[Tensor]:
        """Yield the mask of each token of turns sampled under a grammar, [T, W] int32 per turn.

        After a disallowed token, masks are all zero. Raises ConstraintError.
        """
        most = AT_ONCE // (self._words * 4)
        while turns:
            num = [0, *itertools.accumulate(len(ids) + 1 for _, ids in turns)]
            part = max(1, sum(n <= most for n in num[1:]))
            bits = torch.zeros(num[part], self._words, dtype=torch.int32)
            jobs = [(self.start(turns[i][0]), num[i], turns[i][1]) for i in range(part)]
            self._executor.unsafe_compute_mask_ptr_with_draft_token(
                jobs, bits.data_ptr(), self._words * 4, len(bits)
            )
            yield from (bits[num[i] : num[i + 1] - 1] for i in range(part))
            turns = turns[part:]

    @property
    def _words(self) -> int:
        return -(-self.vocabulary.size // WORD)

    @cached_property
    def _executor(self) -> LLExecutor:
        return LLExecutor(max(1, torch.get_num_threads()))

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        """The tokenizer for llguidance. Takes a second for a large vocabulary."""
        of = self.vocabulary
        if not of.tokenizer:
            raise ConstraintError(
                "answers of this model cannot be held to a schema: its tokenizer is not one of the "
                "library tokenizers"
            )
        return LLTokenizer(of.tokenizer, n_vocab=of.size, eos_token=of.eos)

    def _compile(self, grammar: str) -> LLMatcher:
        with self._lock:
            tokenizer = self._tokenizer
        matcher = LLMatcher(
            tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False)
        )
        error = matcher.get_error()
        if not error:
            first = matcher.deep_copy()
            first.compute_bitmask()  # the first step may be the slowest
            error = first.get_error()
        if error.startswith("NoExtension"):
            raise ConstraintError("no answer can meet the JSON schema")
        if error:
            raise ConstraintError(f"the JSON schema is not supported: {_short(error)}")
        return matcher


def _short(error: str) -> str:
    """Return the first line of the library's error, without its prefix."""
    first = error.strip().splitlines()[0] if error.strip() else "unknown"
    return first.partition("failed to compile JSON schema: ")[2] or first
