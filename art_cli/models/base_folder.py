"""Checks that the path given as `model.base` holds a complete model."""

from __future__ import annotations

from pathlib import Path

from art_cli.errors import UsageError
from art_cli.system.files import read_object

ADAPTER = "adapter_config.json"
GGUF = b"GGUF"  # magic bytes at the start of the file


def check_base_folder(base: str) -> None:
    """Raise UsageError if the path holds something other than a complete model.

    The message names what the path holds and what to use instead. A hub id is not checked.
    """
    path = Path(base)
    if path.is_file():
        with open(path, "rb") as file:
            is_gguf = file.read(len(GGUF)) == GGUF
        raise _refused(base, *(_GGUF if is_gguf else ("is a file", "take the model's folder")))
    if not path.is_dir():
        return
    has_config = (path / "config.json").exists()
    if (path / ADAPTER).exists():
        raise _refused(base, *(_BOTH if has_config else _adapter(path)))
    if has_config:
        return
    if any(path.glob("*.gguf")):
        raise _refused(base, *_GGUF)
    if (path / "config.yaml").exists() and (path / "checkpoints").is_dir():
        what = "is the directory of a run"
        raise _refused(base, what, f"`art deploy {base} --to merged folder=FOLDER` writes a model")
    names = ", ".join(sorted(p.name for p in path.iterdir())[:5]) or "nothing"
    raise UsageError(f"model.base: {base!r} holds no model: no config.json beside {names}")


_GGUF = (
    "holds weights for llama.cpp (GGUF), which are not read",
    "take the folder or hub id that they were made from",
)
_BOTH = (
    f"holds {ADAPTER} beside the config.json of a model: transformers would load both",
    "move one of them, with its weights, to another folder",
)


def _adapter(folder: Path) -> tuple[str, str]:
    """Return the message parts for a folder that holds a PEFT adapter and no model."""
    try:
        fields = {str: ("base_model_name_or_path",)}
        base = read_object(folder / ADAPTER, fields)["base_model_name_or_path"]
    except (OSError, ValueError):
        return "holds an adapter, and does not say of which model", "merge it into its base"
    run = folder.parent.parent
    if folder.parent.name == "checkpoints" and (run / "config.yaml").exists():
        merge = f"`art deploy {run} --to merged --checkpoint {folder.name} folder=FOLDER`"
    else:
        merge = "PeftModel.merge_and_unload()"
    todo = f"take {base}, or merge the adapter into it: {merge}"
    return f"holds an adapter of {base!r}, not a model", todo


def _refused(base: str, what: str, todo: str) -> UsageError:
    return UsageError(f"model.base: {base!r} {what}; {todo}")
