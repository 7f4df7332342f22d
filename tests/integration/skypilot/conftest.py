"""What the tests of SkyPilot share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sky_user import SMALL, User

ONE, OTHER = "art-one", "art-other"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node that is up, with art on it."""
    user = User(tmp_path_factory.mktemp("launch"))
    printed = launch(user, ONE, "--gpus", "H100:1", "backend.resources.infra=slurm/loop")
    assert f"ssh {ONE}" in printed and f"--on {ONE}" in printed and "$0.00 an hour" in printed
    yield ONE
    user.art("cluster", "down", ONE)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another one, without a GPU."""
    user = User(tmp_path_factory.mktemp("launch"))
    launch(user, OTHER, "backend.use=skypilot", f"backend.resources={SMALL}")
    yield OTHER
    user.art("cluster", "down", OTHER)


def launch(user: User, name: str, *overrides: str) -> str:
    """Rent a cluster; return what that printed."""
    return user.art("launch-cluster", "config.yaml", "--name", name, *overrides, "--yes")
