"""What the tests of SkyPilot share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sky_user import User

NAME = "art-one"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node that is up, with art on it."""
    user = User(tmp_path_factory.mktemp("launch"))
    rented = ["--gpus", "H100:1", "backend.resources.infra=slurm/loop", "--yes"]
    printed = user.art("launch-cluster", "config.yaml", "--name", NAME, *rented)
    assert f"ssh {NAME}" in printed and f"--on {NAME}" in printed and "$0.00 an hour" in printed
    yield NAME
    user.art("cluster", "down", NAME)
