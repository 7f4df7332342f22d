"""A tokenizer's chat template, a program that turns messages into text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from art_cli.errors import EXIT_USAGE, UsageError, did_you_mean
from art_cli.system.allocator import at_most
from art_cli.system.watchdog import last_resort

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GIVEN = {  # variables that every template gets; others can be set in `model.template_args`
    *("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"),
    *("pad_token", "unk_token", "raise_exception", "strftime_now", "namespace", "range"),
}
SECONDS = 60.0  # to render the probes of `TemplateCapabilities`
NUM_BYTES = 2**31  # that it may allocate meanwhile
GENERATION_TAG = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")  # not part of the language


class ChatTemplate:
    """The template, its arguments beside the messages, and a fixed time.

    Llama, Mistral and Granite write today's date into the prompt. The time is fixed because an
    episode over midnight would otherwise fork, and a run resumed on another day would read other
    tokens. Raises UsageError if there is no template, or it does not read one of the arguments.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        args: Mapping[str, Any],
        now: datetime | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise UsageError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an "
                "instruct model, or add chat_template.jinja to its folder"
            )
        self._tokenizer = tokenizer
        self.args = dict(args)
        self.now = now or datetime.now()
        self.name = tokenizer.name_or_path
        template: Any = tokenizer.chat_template
        self.source: str = template if isinstance(template, str) else "\n".join(template.values())
        if args:
            self._check_args()

    def __call__(
        self, messages: list[Any], tools: list[Any] | None = None, *, generate: bool = False
    ) -> str:
        """Render messages as text. Raises UsageError if the template refuses them."""
        try:
            return self._tokenizer.apply_chat_template(
                messages,
                tools=tools,
                tokenize=False,
                add_generation_prompt=generate,
                strftime_now=self.now.strftime,
                **self.args,
            )  # type: ignore[return-value]
        except Exception as e:  # a template is a program, and messages and tools are untrusted
            why = str(e) if isinstance(e, TemplateError) else f"{type(e).__name__}: {e}"
            why = "it takes too much memory" if isinstance(e, MemoryError) else why
            roles = ", ".join(m["role"] for m in messages)
            raise UsageError(
                f"the chat template of {self.name!r} refuses the messages "
                f"({roles:.200}): {why:.500}"
            ) from None

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the template's time and memory inside the block: it may loop forever."""
        watched = last_resort(
            SECONDS, f"the chat template of {self.name!r}", Path("<template>"), EXIT_USAGE
        )
        with watched, at_most(NUM_BYTES):
            yield

    def _check_args(self) -> None:
        language = ImmutableSandboxedEnvironment(extensions=[loopcontrols])
        try:
            program = language.parse(GENERATION_TAG.sub("", self.source))
        except TemplateError as e:
            raise UsageError(f"the chat template of {self.name!r} cannot be read: {e}") from None
        names = program.find_all(nodes.Name)
        tests = (t.node for t in program.find_all(nodes.Test) if t.name == "defined")
        asked = {node.name for node in tests if isinstance(node, nodes.Name)}
        own = {name.name for name in names if name.ctx == "store"} - asked
        known = sorted(meta.find_undeclared_variables(program) - GIVEN - own)
        for name in self.args:
            if name not in known:
                reads = f"it reads {', '.join(known)}" if known else "it reads none"
                raise UsageError(
                    f"model.template_args: the chat template of {self.name!r} does not read "
                    f"{name!r}; {reads}.{did_you_mean(name, known)}"
                )
