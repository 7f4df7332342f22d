"""A managed job's run directory comes from a folder that is seen here; no machine is needed."""

import json
from pathlib import Path

from art_cli.backends.cloud import snapshots
from art_cli.backends.cloud.stored import bring_stored
from art_cli.runs.directory import RunDir


def test_the_newest_replaces_what_is_here_but_for_where_it_was_sent(tmp_path: Path) -> None:
    there = RunDir.create(tmp_path / "node" / "p" / "n")
    there.metrics.write_text("new\n")
    there.config.write_text("resolved there")
    snapshots.save(there.root, tmp_path / "kept" / "p" / "n")
    here = RunDir.create(tmp_path / "runs" / "p" / "n")
    here.metrics.write_text("old\n")
    here.cloud.write_text(json.dumps({"job": 1}))
    deployed = here.deployment("together", "desk") / "deployment.json"
    deployed.parent.mkdir(parents=True)
    deployed.write_text("it costs money")
    assert bring_stored(str(tmp_path / "kept"), None, here, print)
    assert here.metrics.read_text() == "new\n" and json.loads(here.cloud.read_text()) == {"job": 1}
    assert deployed.read_text() == "it costs money"
    assert [p.name for p in here.root.parent.iterdir()] == ["n"]


def test_a_run_that_kept_nothing_leaves_what_is_here(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    here = RunDir.create(tmp_path / "runs" / "p" / "n")
    assert not bring_stored(str(tmp_path / "kept"), None, here, print)
    assert here.root.exists()
