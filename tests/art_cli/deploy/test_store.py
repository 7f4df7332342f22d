"""Whose a record is, and what cannot be one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from art_cli.deploy.store import Store
from art_cli.errors import ArtError
from art_cli.runs.directory import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run with one deployment."""
    run = RunDir(tmp_path / "p" / "n")
    known = Store(run).new("merged", "mine", 2)
    known.made = {"folder": f"{known.home}/weights"}
    known.state, known.url = "ready", known.made["folder"]
    Store(run).keep(known)
    return run


def record(run: RunDir) -> Path:
    return run.deployment("merged", "mine") / "deployment.json"


def test_a_record_in_a_copy_is_its_originals_as_long_as_that_is_there(run: RunDir) -> None:
    copy = RunDir(shutil.copytree(run.root, run.root.with_name("copy")))
    assert Store(copy).all() == [] and Store(copy).find("merged", "mine") is None
    assert Store(copy).originals() == [run.root] and Store(run).originals() == []
    shutil.rmtree(run.root)
    (known,) = Store(copy).all()
    assert known.home == str(record(copy).parent)


def test_the_record_of_a_run_that_was_moved_is_its_own_and_follows(run: RunDir) -> None:
    moved = RunDir(run.root.rename(run.root.with_name("moved")))
    (known,) = Store(moved).all()
    weights = f"{record(moved).parent}/weights"
    assert (known.made["folder"], known.url) == (weights, weights)
    Store(moved).keep(known)
    assert json.loads(record(moved).read_text())["home"] == str(record(moved).parent)


def test_a_run_that_is_reached_by_a_link_is_the_same_run(run: RunDir) -> None:
    link = run.root.with_name("link")
    link.symlink_to(run.root)
    assert len(Store(RunDir(link)).all()) == 1


def test_a_link_to_the_deployments_of_another_run_is_not_followed(run: RunDir) -> None:
    for inside in ("deployments", "deployments/merged-mine"):
        other = RunDir(run.root.with_name(inside.replace("/", "-")))
        (other.root / inside).parent.mkdir(parents=True)
        (other.root / inside).symlink_to(run.root / inside)
        with pytest.raises(ArtError, match="is reached by a link"):
            Store(other).all()
        with pytest.raises(ArtError, match="is reached by a link"):
            Store(other).find("merged", "mine")


@pytest.mark.parametrize(
    "change",
    [
        {"target": "other"},
        {"target": ["merged"]},
        {"name": "another"},
        {"name": "../../n/deployments/merged-mine"},
        {"step": "2"},
        {"state": "unknown"},
        {"made": ["folder"]},
        {"made": {"folder": 7}},
        {"made": {"folder": ""}},
        {"made": {"folder": "/"}},
        {"made": {"folder": "weights"}},
        {"made": {"pid": "1"}},
        {"made": {"pid": True}},
        {"made": {"pid": [1]}},
        {"made": {"port": 8000.5}},
        {"asked": "repo"},
        {"billed_since": "yesterday"},
        {"billed_since": 7},
        {"usd": "free"},
        {"unknown": 1},
    ],
)
def test_what_was_not_written_by_art_is_damage(run: RunDir, change: dict[str, Any]) -> None:
    file = record(run)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ArtError, match="is damaged") as raised:
        Store(run).all()
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[" * 100_000, "\x00"])
def test_a_file_that_is_no_record_is_damage(run: RunDir, text: str) -> None:
    record(run).write_text(text)
    with pytest.raises(ArtError, match="is damaged"):
        Store(run).all()
