"""The service file of `art deploy --to skyserve`, read by SkyPilot itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from art_cli.deploy.targets.skyserve import service_of

sky: Any = pytest.importorskip("sky")


def test_skypilot_takes_the_service_file(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(service_of("desk", weights, "H100:4", replicas=2)))
    task = sky.Task.from_yaml(str(file))
    assert task.service.readiness_path == "/v1/models" and task.service.min_replicas == 2
    (resources,) = task.resources
    assert resources.accelerators == {"H100": 4} and resources.ports == ["8000"]
    assert task.file_mounts == {"/weights": str(weights)}
    assert "--tensor-parallel-size 4" in task.run
