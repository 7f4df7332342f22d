"""A run that is to go on with other code or data than it was made with."""

from __future__ import annotations

import json
from pathlib import Path

from short_run import COLOURS, CONFIG, Art, output_of

from art_cli.errors import EXIT_USAGE

WORDS = ("sft.demonstrations=demos.jsonl", "sft.epochs=1", "eval=null", "checkpoint.every=1")
TALK = [("user", "red"), ("assistant", "black"), ("user", "blue"), ("assistant", "green")]


def go_on(folder: Path, *words: str) -> tuple[int, str]:
    """Resume; return the exit code and what was printed."""
    before = len(output_of(folder))
    code = Art(folder, "config.yaml", *WORDS, "--resume", *words).wait()
    return code, " ".join(output_of(folder)[before:].split())


def test_what_changed_is_named_and_accepted_only_by_word(tmp_path: Path) -> None:
    env, demos = tmp_path / "env.py", tmp_path / "demos.jsonl"
    env.write_text(COLOURS.read_text())
    said = [{"role": role, "content": content} for role, content in TALK]
    demos.write_text(json.dumps({"messages": said}) + "\n")
    (tmp_path / "config.yaml").write_text(CONFIG.replace(f"{COLOURS}:", "env.py:"))
    assert go_on(tmp_path, "train.steps=1")[0] == 0  # there is nothing yet to go on with
    assert go_on(tmp_path, "train.steps=2")[0] == 0
    env.write_text(env.read_text().replace("self.right / 2", "self.right / 2 - 1"))
    demos.write_text(demos.read_text() * 2)
    code, told = go_on(tmp_path, "train.steps=3")
    assert code == EXIT_USAGE
    assert "was made with other code or data" in told and "env code: env.py:Opposites" in told
    assert "sft.demonstrations: demos.jsonl" in told and "--accept-changes" in told
    assert go_on(tmp_path, "train.steps=3", "--from-step", "1")[0] == EXIT_USAGE
    assert go_on(tmp_path, "train.steps=3", "--accept-changes")[0] == 0
    assert go_on(tmp_path, "train.steps=4")[0] == 0  # as it was accepted
