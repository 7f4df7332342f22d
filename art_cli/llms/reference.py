"""`model: reference`: the policy's own base without its adapter, on an engine of this run.

It needs no API key, no second GPU and no network, and costs nothing.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

from art_cli.chat.grammar.write import answer_grammar
from art_cli.chat.openai_format import read_messages, write_turn
from art_cli.chat.render import Conversation, Renderer
from art_cli.chat.too_long import TooLongError
from art_cli.config.sections.llm import REFERENCE
from art_cli.engines.base import Engine
from art_cli.envs.base import seed_of
from art_cli.errors import ConstraintError, EngineError, LLMError
from art_cli.llms.base import ChatMessage, Reply, Schema, Tools, Usage, calls_of
from art_cli.llms.thoughts import without_thoughts
from art_cli.system.deadline import beside


class ReferenceLLM:
    """LLM on an engine that serves the base model; implements `LLM`."""

    def __init__(
        self, engine: Engine, renderer: Renderer, *, max_len: int, max_answer: int, identity: Any
    ) -> None:
        """`max_len` and `max_answer` are in tokens; `identity` is the base's, for cache keys."""
        self.name = REFERENCE
        self.usage = Usage()
        self.spent = 0.0
        self.max_input_tokens = max_len - max_answer
        self.takes_bounds = True
        self._engine = engine
        self._renderer = renderer
        self._identity = identity

    @property
    def identity(self) -> Any:
        return {REFERENCE: self._identity}

    async def ask(
        self, messages: list[ChatMessage], schema: Schema | None = None, tools: Tools = None
    ) -> Reply:
        """See `LLM`. The same messages always get the same answer.

        With a `schema`, the answer is sampled under its grammar. Raises LLMError if the schema is
        not supported.
        """
        said = read_messages(messages)
        text = "".join(f"{m['role']}{m['content']}" for m in said)
        seed = seed_of(hashlib.sha256(text.encode()).hexdigest())
        session, began = self._engine.open(seed), time.monotonic()
        renderer = self._renderer.offering(tools) if tools else self._renderer
        conversation = Conversation(renderer)
        try:
            room = self.max_input_tokens
            await beside(len(text), conversation.add_messages, said, "", room)
            if len(conversation.ids) > room:
                raise self._too_long(f"{len(conversation.ids)} tokens")
            grammar = self._grammar(renderer, conversation, schema, tools) if schema else None
            completion = await session.generate(conversation.ids, grammar=grammar)
        except TooLongError as e:
            raise self._too_long(str(e)) from None
        except (EngineError, ConstraintError) as e:
            raise LLMError(f"reference: {e}") from e
        finally:
            session.close()
            self.usage.seconds += time.monotonic() - began
        self.usage.calls += 1
        turn = renderer.read(conversation.add_completion(completion))
        message = write_turn(turn, with_tools=bool(tools))
        return Reply(
            text=without_thoughts(message["content"] or ""),
            cut=completion.finish_reason == "length",
            calls=calls_of(message),
            message=message,
            num_read=len(conversation.ids) - len(completion.token_ids),
            num_written=len(completion.token_ids),
        )

    def _grammar(
        self, renderer: Renderer, conversation: Conversation, schema: Schema, tools: Tools
    ) -> str:
        functions = [tool["function"] for tool in tools or ()]
        return answer_grammar(
            renderer,
            self._engine.grammars.specials,
            conversation.prompt,
            schema,
            {f["name"]: f.get("parameters") or {} for f in functions},
        )

    def _too_long(self, length: str) -> LLMError:
        return LLMError(
            f"reference: the prompt is {length}, and there is room for {self.max_input_tokens}; "
            "raise engine.max_model_len"
        )

    async def close(self) -> None:
        """See `LLM`. The engine belongs to the run, which closes it."""
