"""litellm takes seconds to import: only those who have a judge that needs it wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from short_run import CONFIG

JUDGE = "judge.model=openai/o3"
ONE_STEP = ("sft=null", "eval=null", "train.steps=1", "train.scenarios_per_step=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["validate", "config.yaml"],
        ["validate", "config.yaml", JUDGE, "judge.max_usd=5", "reward.judge=1"],
        ["run", "config.yaml", "--dry-run", JUDGE],
        ["run", "config.yaml", *ONE_STEP],
    ],
    ids=" ".join,
)
def test_litellm_is_not_imported(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    code = (
        "import atexit, sys; from art_cli.cli.main import main; "
        "atexit.register(lambda: print('litellm' in sys.modules)); main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"OPENAI_API_KEY": "sk-0123456789"}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "False"
