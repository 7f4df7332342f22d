"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.tensorboard import TensorboardSink

reader = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator",
    reason="pip install 'art-cli[tensorboard]'",
)


def read(folder: Path, key: str) -> list[tuple[int, float]]:
    """The points of a curve, of all sessions."""
    events: Any = reader.EventAccumulator(str(folder)).Reload()
    return [(point.step, point.value) for point in events.Scalars(key)]


def test_a_resumed_run_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    for first in (1, 3):
        sink = TensorboardSink(RunDir(tmp_path))
        for step in (first, first + 1):
            sink.take({"training_step": step, "train/reward": step / 4, "train/loss": None})
        assert read(tmp_path / "tensorboard", "train/reward")[-1] == (first + 1, (first + 1) / 4)
        sink.close("done")
    assert read(tmp_path / "tensorboard", "train/reward") == [(n, n / 4) for n in (1, 2, 3, 4)]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
