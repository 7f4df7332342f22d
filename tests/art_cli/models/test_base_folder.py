"""What is no whole model is called what it is, with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from art_cli.errors import UsageError
from art_cli.models.base_folder import check_base_folder

FILES = {
    "gguf": ({"m.gguf": "GGUF\x03"}, r"holds weights for llama\.cpp .*; take the folder or hub id"),
    "both": (
        {"config.json": "{}", "adapter_config.json": "{}"},
        "beside the config.json of a model: transformers would load both; move one of them",
    ),
    "adapter": (
        {"adapter_config.json": json.dumps({"base_model_name_or_path": "Qwen/Qwen3-4B"})},
        r"holds an adapter of 'Qwen/Qwen3-4B', not a model; take Qwen/Qwen3-4B, or merge .*unload",
    ),
    "odd adapter": ({"adapter_config.json": "[1"}, "does not say of which model; merge it"),
    "run": (
        {"config.yaml": "", "checkpoints/1/adapter_config.json": "{}"},
        "is the directory of a run; `art deploy .* --to merged folder=FOLDER` writes a model",
    ),
    "weights": ({"model.safetensors": ""}, "no config.json beside model.safetensors"),
    "empty": ({"readme.md": ""}, "holds no model"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_folder_without_a_whole_model_is_called_what_it_is(tmp_path: Path, kind: str) -> None:
    files, said = FILES[kind]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        check_base_folder(str(tmp_path))


def test_a_checkpoint_that_is_an_adapter_says_how_its_run_writes_the_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints" / "40"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").touch()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "b"}')
    with pytest.raises(UsageError, match="run --to merged --checkpoint 40 folder=FOLDER"):
        check_base_folder(str(folder))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    for name, text, said in (("a.gguf", b"GGUF\x03", "llama"), ("b.bin", b"\0", "is a file; take")):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(UsageError, match=said):
            check_base_folder(str(tmp_path / name))


def test_a_model_and_a_hub_id_pass(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_base_folder(str(tmp_path))
    check_base_folder("Qwen/Qwen3-4B")
