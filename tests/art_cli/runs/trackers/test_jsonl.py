import json
import subprocess
import sys
from pathlib import Path

from art_cli.runs.trackers.jsonl import JsonlTracker

KILLED = """
import os, signal, sys
from pathlib import Path
from art_cli.runs.trackers.jsonl import JsonlTracker
tracker = JsonlTracker(Path(sys.argv[1]))
for step in range(3):
    tracker.log({"training_step": step})
os.kill(os.getpid(), signal.SIGKILL)
"""
FULL = """
import resource, sys
from pathlib import Path
from art_cli.runs.trackers.base import Trackers
from art_cli.runs.trackers.jsonl import JsonlTracker
trackers = Trackers([JsonlTracker(Path(sys.argv[1]))], print)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
for step in range(5):
    trackers.log({"training_step": step})
"""


def test_numbers_that_are_not_finite_are_null_and_keep_their_key(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    tracker.log({"training_step": 1, "loss/kl": float("nan"), "loss/entropy": float("inf")})
    tracker.finish("done")
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row == {"training_step": 1, "loss/kl": None, "loss/entropy": None}


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for step in (1, 2):
        tracker = JsonlTracker(tmp_path / "metrics.jsonl")
        tracker.log({"training_step": step})
        tracker.finish("interrupted")
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert lines == ['{"training_step": 1}', '{"training_step": 2}']


def test_kill_9_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert [json.loads(line)["training_step"] for line in path.read_text().splitlines()] == [
        0,
        1,
        2,
    ]


def test_a_full_disk_does_not_stop_the_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "metrics.jsonl")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "JsonlTracker is switched off: OSError: only 8 of 21 bytes fit\n"
