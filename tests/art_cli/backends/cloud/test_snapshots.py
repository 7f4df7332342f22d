"""A run directory on storage."""

from pathlib import Path

from art_cli.backends.cloud import snapshots


def make_run(root: Path) -> None:
    for name, text in {
        "metrics.jsonl": "{}\n",
        "run.lock": "",
        "checkpoints/4/model": "four",
        "checkpoints/.writing-8/model": "half",
        ".metrics.jsonl.7.tmp": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def names(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_what_was_kept_comes_back_without_what_was_half_done(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    snapshots.save(tmp_path / "run", tmp_path / "kept")
    assert snapshots.restore(tmp_path / "kept", tmp_path / "there" / "run")
    assert names(tmp_path / "there") == ["run/checkpoints/4/model", "run/metrics.jsonl"]


def test_a_run_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    snapshots.save(tmp_path / "run", tmp_path / "kept")
    (tmp_path / "run" / "metrics.jsonl").write_text("newer")
    assert snapshots.restore(tmp_path / "kept", tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == "newer"


def test_one_that_was_cut_off_or_damaged_is_not_taken(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    for _ in range(3):
        last = snapshots.save(tmp_path / "run", tmp_path / "kept")
    assert names(tmp_path / "kept") == ["00000002.zip", "00000003.zip"]
    whole = last.read_bytes()
    last.write_bytes(whole.replace(b"four", b"five"))
    (tmp_path / "kept" / "00000004.zip").write_bytes(whole[:-30])
    assert snapshots.restore(tmp_path / "kept", tmp_path / "back")
    assert (tmp_path / "back" / "checkpoints" / "4" / "model").read_text() == "four"


def test_nothing_kept_is_nothing_restored(tmp_path: Path) -> None:
    assert not snapshots.restore(tmp_path / "kept", tmp_path / "run")
    assert not (tmp_path / "run").exists()
