"""The Python face as docs/python.md shows it trains a policy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_python_example_of_the_docs_learns(tmp_path: Path) -> None:
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[-1]
    out = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert out.returncode == 0, out.stderr
    before, after = map(float, re.findall(r"-?\d\.\d\d", out.stdout))
    assert after > before
    assert (tmp_path / "runs/tutorial/tic-tac-toe/checkpoints/30/model.safetensors").exists()
