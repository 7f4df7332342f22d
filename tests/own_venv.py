"""An environment of its own for what must not be installed beside art: an official client, say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_with(name: str, *requirements: str) -> Path:
    """The Python of `.venv-NAME` in the project's folder, made with `requirements` if missing."""
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([str(python), *words, *requirements], check=True)
        (folder / ".installed").touch()
    return python
