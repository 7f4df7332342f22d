"""The text of tokens on the page, by the tokenizer that a run leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from art_cli.runs.directory import RunDir
from art_cli.view.pieces import Pieces

VOCABULARY = ["a", "Ġb", "<|end|>", "Ã", "", "é"]  # "Ã" is the first byte of "é" and others


def write_tokenizer(folder: Path, words: list[str] = VOCABULARY) -> None:
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "p" / "r")
    run.root.mkdir(parents=True)
    return run


def test_each_token_has_a_text_that_can_be_seen(run: RunDir) -> None:
    write_tokenizer(run.base)
    texts = Pieces(run).of({0, 1, 2, 3, 4, 99, -1})
    assert texts == {
        **{0: "a", 1: " b", 2: "<|end|>"},
        **{3: "Ã"},  # a part of a character: its name in the vocabulary
        **{4: "[4]", 99: "[99]"},  # no text at all
        -1: "[?]",
    }


def test_the_newest_tokenizer_that_can_be_read_is_taken(run: RunDir) -> None:
    assert Pieces(run).of({0}) == {}
    for step, words in ((2, ["two"]), (4, ["four"])):
        write_tokenizer(run.checkpoint(step), [*words, "<|end|>"])
    assert Pieces(run).of({0}) == {0: "four"}
    (run.checkpoint(4) / "tokenizer.json").write_text("{")
    assert Pieces(run).of({0}) == {0: "two"}
    write_tokenizer(run.base, ["base", "<|end|>"])
    assert Pieces(run).of({0}) == {0: "base"}


def test_a_base_in_a_folder_has_the_tokenizer_of_the_folder(run: RunDir, tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "model", ["folder", "<|end|>"])
    run.config.write_text(f"model: {{base: {tmp_path / 'model'}}}\n")
    assert Pieces(run).of({0}) == {0: "folder"}
    run.config.write_text("model: {base: nobody/no-such-model}\n")
    assert Pieces(run).of({0}) == {}
    run.config.write_text("model: 7\n")
    assert Pieces(run).of({0}) == {}
