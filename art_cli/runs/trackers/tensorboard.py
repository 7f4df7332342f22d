"""TensorBoard: event files in the run's folder, written by torch (extra `tensorboard`).

tensorboard --logdir runs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.sink import finite


class TensorboardSink:
    """Appends to tensorboard/ in the run's directory."""

    def __init__(self, run: RunDir) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run.root / "tensorboard"))

    def take(self, row: Mapping[str, Any]) -> None:
        """See Sink."""
        for key, value in finite(row).items():
            self._writer.add_scalar(key, value, row["training_step"])
        self._writer.flush()

    def close(self, state: str) -> None:
        """See Sink."""
        self._writer.close()
