"""Which folders a deployment may remove or replace: its own, and those that nobody has touched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.deploy.store import Store
from art_cli.deploy.targets.merged import WEIGHTS
from art_cli.errors import EXIT_FAILED, EXIT_USAGE
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import write_sums

FLAGS = ["--to", "merged", "--checkpoint", "last"]
NAME = "test-short-2"


def code(result: Any) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def invoke(command: str, root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [command, str(root), *words])


def record(run: RunDir) -> Path:
    return run.deployment("merged", NAME) / "deployment.json"


def rewrite(run: RunDir, **made: Any) -> None:
    """Let the record say that this was made."""
    written = json.loads(record(run).read_text()) | {"state": "ready"}
    written["made"] = made
    record(run).write_text(json.dumps(written))


@pytest.fixture
def thesis(tmp_path: Path) -> Iterator[Path]:
    """A folder of someone's, which outlives each test."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "text.txt").write_text("years of work")
    yield folder
    assert (folder / "text.txt").read_text() == "years of work"


@pytest.mark.parametrize("where", [[], ["folder=there"]])
def test_a_copied_run_ends_nothing_of_its_original(art: Any, run: RunDir, where: list[str]) -> None:
    assert code(art("deploy", *FLAGS, *where)) == 0
    folder = Path(Store(run).all()[0].made["folder"])
    copy = Path(shutil.copytree(run.root, "copies/test/short"))
    result = invoke("undeploy", copy, "--yes")
    assert code(result) == EXIT_USAGE and f"it is a copy of {run.root.absolute()}" in str(
        result.exception
    )
    assert (folder / "model.safetensors").exists()
    assert len(json.loads(invoke("deployments", copy.parents[1], "--json").output or "[]")) <= 1
    assert code(art("undeploy", "--yes")) == 0 and not folder.exists()


def test_a_copied_run_deploys_weights_of_its_own(art: Any, run: RunDir) -> None:
    assert code(art("deploy", *FLAGS)) == 0
    copy = Path(shutil.copytree(run.root, "copies/test/short"))
    assert code(invoke("deploy", copy, *FLAGS)) == 0
    (known,) = Store(RunDir(copy)).all()
    assert Path(known.made["folder"]).is_relative_to(copy.absolute())
    assert code(invoke("undeploy", copy, "--yes")) == 0
    assert Path(Store(run).all()[0].made["folder"]).is_dir()


@pytest.mark.parametrize("where", [[], ["folder=there"]])
def test_a_run_that_was_moved_is_undeployed(art: Any, run: RunDir, where: list[str]) -> None:
    assert code(art("deploy", *FLAGS, *where)) == 0
    moved = run.root.rename(run.root.with_name("moved"))
    (known,) = json.loads(invoke("deployments", moved, "--json").output)
    assert known["now"] == "ready" and Path(known["url"]).is_dir()
    result = invoke("undeploy", moved, "--yes")
    assert code(result) == 0 and "is removed" in result.output
    assert (
        not Path("there").exists() and not (moved / f"deployments/merged-{NAME}/weights").exists()
    )


@pytest.mark.parametrize("seal", [None, "0" * 64])
def test_a_record_removes_no_folder_that_it_did_not_write(
    art: Any, run: RunDir, thesis: Path, seal: str | None
) -> None:
    assert code(art("deploy", *FLAGS)) == 0
    up = f"{record(run).parent.absolute()}/../../../../../thesis"
    for folder in (thesis, up, run.checkpoint(2).absolute(), run.root.absolute()):
        made = {"folder": str(folder)} | ({"seal": seal} if seal else {})
        rewrite(run, **made)
        result = art("undeploy", "--yes")
        assert code(result) == 0 and "is left" in result.output
    assert (run.checkpoint(2) / "adapter_model.safetensors").exists()


def test_a_link_in_place_of_the_weights_is_removed_alone(
    art: Any, run: RunDir, thesis: Path
) -> None:
    assert code(art("deploy", *FLAGS)) == 0
    weights = Path(Store(run).all()[0].made["folder"])
    shutil.rmtree(weights)
    weights.symlink_to(thesis)
    assert code(art("undeploy", "--yes")) == 0 and not weights.is_symlink()


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "sub/notes.txt", "link"])
def test_a_folder_that_someone_has_put_something_into_is_left(
    art: Any, run: RunDir, thesis: Path, name: str
) -> None:
    assert code(art("deploy", *FLAGS, "folder=there")) == 0
    path = Path("there", name)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(thesis) if name == "link" else path.write_text("mine")
    again = ["deploy", *FLAGS, "folder=there", "--name", "other"]
    assert "is not empty" in str(art(*again).exception)
    result = art("undeploy", "--yes")
    assert code(result) == 0
    assert "there is left" in result.output and f"{name} is not what was written" in result.output
    assert path.exists() and Path("there/model.safetensors").exists()


def test_a_folder_whose_weights_someone_has_changed_is_left(art: Any, run: RunDir) -> None:
    assert code(art("deploy", *FLAGS, "folder=there")) == 0
    Path("there/model.safetensors").write_bytes(b"trained on")
    result = art("undeploy", "--yes")
    assert code(result) == 0 and "model.safetensors is not what was written" in result.output
    assert Path("there/model.safetensors").read_bytes() == b"trained on"


def test_what_stands_beside_the_folder_is_left(art: Any, run: RunDir) -> None:
    """Others write beside it too: another `art deploy`, at this instant, for one."""
    for name in (".writing-thesis", ".removed-thesis"):
        Path(name).mkdir()
    assert code(art("deploy", *FLAGS, "folder=there")) == 0
    assert code(art("undeploy", "--yes")) == 0
    assert {".writing-thesis", ".removed-thesis"} <= set(os.listdir())


def test_the_folder_of_a_checkpoint_is_not_written_over(art: Any, run: RunDir) -> None:
    """Its checksums are right, and a deployment that was killed may stand in the record."""
    other = shutil.copytree(run.checkpoint(1), "saved")
    assert code(art("deploy", *FLAGS)) == 0
    written = json.loads(record(run).read_text())
    record(run).write_text(json.dumps(written | {"state": "deploying", "made": {}}))
    result = art("deploy", *FLAGS, "folder=saved")
    assert code(result) == EXIT_USAGE and "is not empty" in str(result.exception)
    assert (Path(other) / "optimizer.pt").exists()


def test_it_is_in_one_folder_at_a_time(art: Any, run: RunDir) -> None:
    assert code(art("deploy", *FLAGS, "folder=there")) == 0
    result = art("deploy", *FLAGS, "folder=elsewhere")
    assert code(result) == EXIT_USAGE and not Path("elsewhere").exists()
    assert f"{NAME} is in {Path('there').absolute()}; end it" in str(result.exception)


def test_a_record_of_the_wrong_form_is_told(art: Any, run: RunDir) -> None:
    assert code(art("deploy", *FLAGS)) == 0
    rewrite(run, folder=["/"])
    result = art("undeploy", "--yes")
    assert code(result) == EXIT_FAILED and "made.folder is list" in str(result.exception)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b'{"tokenizer_class": "None"}'),
        ("chat_template.jinja", "{{ messages }}".encode("utf-16")),
        ("adapter_config.json", b"[]"),
        ("adapter_config.json", b'{"peft_type": "none"}'),
        ("adapter_model.safetensors", b"\xff" * 8),
    ],
)
def test_a_file_that_no_run_wrote_is_told_whatever_its_checksum(
    art: Any, run: RunDir, file: str, content: bytes
) -> None:
    checkpoint = run.checkpoint(2)
    (checkpoint / file).write_bytes(content)
    write_sums(checkpoint)
    result = art("deploy", *FLAGS)
    assert code(result) == EXIT_FAILED
    assert f"{checkpoint.absolute()} is not a valid file" in str(result.exception)
    assert not list(run.root.rglob(f"{WEIGHTS}*")) and not list(run.root.rglob(".writing-*"))


def test_a_hidden_link_in_a_checkpoint_is_not_deployed(art: Any, run: RunDir, thesis: Path) -> None:
    (run.checkpoint(2) / ".notes").symlink_to(thesis / "text.txt")
    os.mkfifo(run.checkpoint(2) / ".pipe")
    assert code(art("deploy", *FLAGS)) == 0
    weights = Path(Store(run).all()[0].made["folder"])
    assert (weights / "model.safetensors").exists()
    assert not [path.name for path in weights.iterdir() if path.name.startswith(".")]


def weights_of(run: RunDir, target: str) -> Path:
    return run.deployment(target, NAME) / WEIGHTS / "model.safetensors"


def test_deployments_of_a_checkpoint_share_their_weights_and_outlive_each_other(
    art: Any, run: RunDir
) -> None:
    assert code(art("deploy", *FLAGS)) == 0
    assert code(art("deploy", "--to", "ollama", "--checkpoint", "last")) == 0
    merged, ollama = weights_of(run, "merged"), weights_of(run, "ollama")
    assert os.path.samefile(merged, ollama)
    assert (merged.parent / "config.json").stat().st_nlink == 1
    assert "add_bos_token" in (ollama.parent / "tokenizer_config.json").read_text()
    before = ollama.read_bytes()
    assert code(art("undeploy", f"merged/{NAME}", "--yes")) == 0
    assert not merged.exists() and ollama.read_bytes() == before


def test_weights_that_were_changed_or_are_elsewhere_are_not_shared(art: Any, run: RunDir) -> None:
    assert code(art("deploy", "--to", "ollama", "--checkpoint", "last")) == 0
    ollama = weights_of(run, "ollama")
    assert code(art("deploy", *FLAGS, "folder=there")) == 0
    assert not os.path.samefile(ollama, "there/model.safetensors")
    whole = Path("there/model.safetensors").read_bytes()
    assert ollama.read_bytes() == whole
    ollama.write_bytes(whole[:-1] + b"x")
    assert code(art("undeploy", f"merged/{NAME}", "--yes")) == 0
    assert code(art("deploy", *FLAGS)) == 0
    assert weights_of(run, "merged").read_bytes() == whole
