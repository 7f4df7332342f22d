"""`art run` with vLLM as its engine, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ART = str(Path(sys.executable).with_name("art"))
SMALL = [
    *(
        "sft.num_demonstrations=400",
        "sft.epochs=4",
        "sft.batch_size=8",
        "train.steps=3",
        "train.warmup_steps=1",
    ),
    *("eval.episodes=16", "eval.every=3", "engine.use=vllm", "engine.max_model_len=1024"),
    *("train.num_minibatches=1", "train.num_iterations=1"),  # all on-policy
    "engine.extra={enforce_eager: true}",
]


def test_a_run_samples_from_the_weights_that_it_trains(tmp_path: Path) -> None:
    """All of them; adapters are those of test_families.py, and of test_nodes.py."""
    config = str(ROOT / "configs" / "quickstart.yaml")
    command = [ART, "run", config, *SMALL, "name=small", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"] and "leaked" not in done.stderr
    [run] = (tmp_path / "runs").glob("*/small")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss/logprob_gap" in row]
    assert len(steps) == 3 and all(row["loss/logprob_gap"] < 1e-4 for row in steps)
    assert all(abs(row["loss/ratio_max"] - 1) < 1e-3 for row in steps)
    assert (run / "logs" / "engine-0.log").stat().st_size > 0
    assert not list(Path("/dev/shm").glob("art-weights-*"))
