"""Folders as a base's are on the hub, without its weights: a config.json, a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from architectures import chatml_tokenizer, make_config


def write_base(folder: Path, name: str, **changes: Any) -> Path:
    """Write what is known of an architecture of `architectures.py`, with changes to its config."""
    chatml_tokenizer().save_pretrained(folder)
    config = make_config(name)
    known = {**config.to_diff_dict(), "model_type": config.model_type, **changes}
    (folder / "config.json").write_text(json.dumps(known))
    return folder
