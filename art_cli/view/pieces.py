"""Text of token ids, by the tokenizer of the run or one that is already on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from art_cli.config.yaml import read_document
from art_cli.errors import ArtError
from art_cli.runs.directory import RunDir
from art_cli.system.files import read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer


LARGEST_TOKENIZER = 1 << 26  # characters


class Pieces:
    """The text of each token. Nothing is fetched from the network."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._tokenizer: Tokenizer | None = None
        self._searched = False
        self._known: dict[int, str] = {}

    def of(self, ids: set[int]) -> dict[int, str]:
        """Return the text of each id, or nothing if no tokenizer is available."""
        if not self._searched:
            self._tokenizer, self._searched = _find(self._run), True
        if self._tokenizer is None:
            return {}
        for i in ids - self._known.keys():
            self._known[i] = _text(self._tokenizer, i) if i >= 0 else "[?]"
        return {i: self._known[i] for i in ids}


def _text(tokenizer: Tokenizer, token: int) -> str:
    text = tokenizer.decode([token], skip_special_tokens=False)
    if "\ufffd" in text or not text:  # a part of a character
        return tokenizer.id_to_token(token) or f"[{token}]"
    return text


def _find(run: RunDir) -> Tokenizer | None:
    from tokenizers import Tokenizer

    kept = [run.base, *(run.checkpoint(step) for step in reversed(run.checkpoint_steps()))]
    found = (*(folder / "tokenizer.json" for folder in kept), _of_base(run))
    for path in filter(None, found):
        try:
            return Tokenizer.from_str(read_text(path, LARGEST_TOKENIZER))
        except (OSError, ValueError):
            continue
        except BaseException as e:  # tokenizers raises no narrower class, and its panics are none
            if isinstance(e, KeyboardInterrupt):
                raise
    return None


def _of_base(run: RunDir) -> Path | None:
    """Return the tokenizer of model.base, from a folder or the cache of the Hugging Face Hub."""
    from huggingface_hub import try_to_load_from_cache

    try:
        base = str(read_document(run.config)["model"]["base"])
        folder = Path(base)
        if folder.is_dir():
            return folder / "tokenizer.json"
        found = try_to_load_from_cache(base, "tokenizer.json")
    except (ArtError, OSError, ValueError, LookupError, TypeError):
        return None
    return Path(found) if isinstance(found, str) else None
