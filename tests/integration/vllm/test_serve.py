"""`art deploy --to serve` with vLLM: merged weights, and the tool calls that its parser finds."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ART = str(Path(sys.executable).with_name("art"))
SHORT = [
    *(
        "sft.num_demonstrations=1000",
        "sft.epochs=4",
        "sft.batch_size=8",
        "train.steps=2",
        "train.warmup_steps=1",
    ),
    *("eval.episodes=8", "eval.every=2", "name=short"),
]


def art(folder: Path, *words: str) -> str:
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [ART, *words], cwd=folder, capture_output=True, text=True, timeout=1000, env=environment
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def test_vllm_serves_what_the_checkpoint_says(tmp_path: Path) -> None:
    art(tmp_path, "run", str(ROOT / "configs/quickstart-lora.yaml"), *SHORT)
    [run] = (tmp_path / "runs").glob("*/short")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        settings = ["engine=vllm", f"port={s.getsockname()[1]}"]
    try:
        said = art(
            tmp_path, "deploy", str(run), "--to", "serve", *settings, "--no-wait", "--verify"
        )
    finally:
        art(tmp_path, "undeploy", str(run), "--yes")
    found = re.search(r"It says (\d+) of (\d+) turns as the checkpoint does", said)
    assert found, said
    assert int(found[2]) >= 20 and int(found[1]) >= 0.9 * int(found[2]), said
