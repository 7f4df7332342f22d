"""Load conversations for SFT from the env, or from a JSONL file of chat messages."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from art_cli.chat.openai_format import ChatFormatError, read_messages
from art_cli.chat.turns import spoken
from art_cli.envs.base import Env
from art_cli.errors import UsageError, blame
from art_cli.system.files import read_text
from art_cli.system.untrusted import read_json
from art_cli.types import Message


def load_demonstrations(
    source: str, env_class: type[Env], settings: Any, num: int
) -> list[list[Message]]:
    """Load at most `num` conversations from `sft.demonstrations`.

    Raises UsageError if there are none, or with file:line if one is malformed.
    """
    if source == "env":
        try:
            found = list(islice(env_class.demonstrations(settings, num), num))
        except UsageError:
            raise
        except Exception as e:
            place = blame(e, env_class)
            raise UsageError(f"{env_class.__name__}.demonstrations() failed: {place}") from e
        if not found:
            raise UsageError(
                f"{env_class.__name__} has no demonstrations; override demonstrations(), or give "
                "a JSONL file in sft.demonstrations"
            )
        return found
    path = Path(source)
    try:
        # Not splitlines: it also splits at characters that JSON allows within a line.
        lines = read_text(path, largest=None).split("\n")
    except FileNotFoundError:
        raise UsageError(f"sft.demonstrations: there is no file {path.absolute()}") from None
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"sft.demonstrations: cannot read {path}: {e}") from None
    numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
    found = [_conversation(line, f"{path}:{n}") for n, line in islice(numbered, num)]
    if not found:
        raise UsageError(f"sft.demonstrations: {path} holds no conversation")
    return found


def texts_of(demonstrations: list[list[Message]], tools: list[dict[str, Any]]) -> list[str]:
    """Return texts to train a tokenizer for the env on: its demonstrations and its tools.

    `tools` are JSON schemas.
    """
    said = [f"{m['role']}\n{m['content']}" for d in demonstrations for m in d]
    functions = [tool["function"] for tool in tools]
    described = [
        f"{f['name']} {' '.join(f['parameters'].get('properties', ()))}: {f['description']}"
        for f in functions
    ]
    return said + described


def _conversation(line: str, place: str) -> list[Message]:
    try:
        value = read_json(line)
    except ValueError as e:
        raise UsageError(f"{place}: not valid JSON ({e})") from None
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        raise UsageError(f'{place}: expected {{"messages": [...]}} with at least one message')
    try:
        parsed = read_messages(messages)
    except ChatFormatError as e:
        raise UsageError(f"{place}: {e}") from None
    for number, message in enumerate(parsed, 1):
        if message["role"] == "assistant" and not spoken(message["content"]).strip():
            raise UsageError(
                f"{place}: message {number}, the assistant's, has no words and no calls; remove it"
            )
    if not any(m["role"] == "assistant" and m.get("weight", 1) for m in parsed):
        raise UsageError(f"{place}: has no assistant message to learn from")
    return joined(parsed)


def joined(messages: list[Message]) -> list[Message]:
    """Merge consecutive assistant messages into one turn.

    Logs often store text and calls as separate messages, but a policy writes both in one turn.
    Messages with different weights stay separate.
    """
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        if (
            last
            and last["role"] == message["role"] == "assistant"
            and last.get("weight", 1) == message.get("weight", 1)
        ):
            content = f"{last['content']}\n{message['content']}"
            out[-1] = {**last, "content": content}
        else:
            out.append(message)
    return out
