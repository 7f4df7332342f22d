"""A damaged checkpoint is named with what to do, by every command that would read it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from short_run import CONFIG, Art, results

from art_cli.errors import EXIT_FAILED, EXIT_USAGE
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import SUMS

REST = ("optimizer.pt", "progress.json")
KEEP = CONFIG.replace("keep: 1", "keep: 3")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Art:
    """A finished run with the checkpoints 4, 6 and 8."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "config.yaml").write_text(KEEP)
    art = Art(folder, "config.yaml")
    assert art.wait() == 0, art.output
    assert {4, 6, 8} <= set(art.run.checkpoint_steps())
    return art


@pytest.fixture
def folder(whole: Art, tmp_path: Path) -> Path:
    """A copy of it that can be spoilt."""
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "out.txt").unlink()
    return tmp_path


def flip(file: Path) -> None:
    """One bit, in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def checkpoint(folder: Path, step: int) -> Path:
    return RunDir(folder / "runs" / "test" / "short").checkpoint(step)


def ended(folder: Path, *arguments: str, command: str = "run") -> tuple[int, str]:
    art = Art(folder, *arguments, command=command)
    code = art.wait()
    assert "Traceback" not in art.output
    return code, art.output


@pytest.mark.parametrize(
    "file",
    ["model.safetensors", *(pytest.param(n, marks=pytest.mark.slow) for n in REST)],
)
def test_a_resume_names_the_damaged_file_and_goes_back_as_if_nothing_had_happened(
    whole: Art, folder: Path, file: str
) -> None:
    flip(checkpoint(folder, 8) / file)
    flip(checkpoint(folder, 6) / "optimizer.pt")
    code, said = ended(folder, "config.yaml", "--resume")
    assert code == EXIT_FAILED
    assert f"checkpoints/8 is damaged: {file} is not what was saved" in said
    assert "Go on from checkpoint 4, which is whole: --resume --from-step 4" in said
    assert checkpoint(folder, 8).exists()
    code, said = ended(folder, "config.yaml", "--resume", "--from-step", "4")
    assert code == 0, said
    expected, found = results(whole.run), results(RunDir(folder / "runs" / "test" / "short"))
    assert found["metrics"] == expected["metrics"]
    assert [name for name in expected if found.get(name) != expected[name]] == []


def test_where_no_checkpoint_is_whole_it_begins_again_and_ends_the_same(
    whole: Art, folder: Path
) -> None:
    run = RunDir(folder / "runs" / "test" / "short")
    for step in run.checkpoint_steps():
        (run.checkpoint(step) / SUMS).unlink()
    code, said = ended(folder, "config.yaml", "--resume")
    assert code == EXIT_FAILED
    assert f"checkpoints/8 is damaged: it has no {SUMS}" in said
    assert "Go on from step 0, where the run began: --resume --from-step 0" in said
    assert ended(folder, "config.yaml", "--resume", "--from-step", "0")[0] == 0
    expected, found = results(whole.run), results(run)
    assert [name for name in expected if found.get(name) != expected[name]] == []


@pytest.mark.slow
def test_a_damaged_base_is_named_and_made_again(whole: Art, folder: Path) -> None:
    run = RunDir(folder / "runs" / "test" / "short")
    flip(run.base / "model.safetensors")
    code, said = ended(folder, "config.yaml", "--resume")
    assert code == EXIT_FAILED
    assert "base is damaged: model.safetensors is not" in said and "Remove the folder" in said
    shutil.rmtree(run.base)
    assert ended(folder, "config.yaml", "--resume")[0] == 0
    assert results(run) == results(whole.run)


def test_another_run_does_not_begin_with_damaged_weights(folder: Path) -> None:
    base = checkpoint(folder, 6)
    config = "".join(line for line in KEEP.splitlines(True) if "tiny: {" not in line)
    config = config.replace("base: tiny", f"base: {base}").replace("name: short", "name: second")
    (folder / "second.yaml").write_text(config)
    flip(base / "model.safetensors")
    code, said = ended(folder, "second.yaml")
    assert code == EXIT_FAILED
    assert "checkpoints/6 is damaged: model.safetensors is not what was saved" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from-step", "4"), "--from-step goes on with a run that exists; add --resume"),
        (("--resume", "--from-step", "5"), "can go on after one of: 0, 4, 6, 8"),
    ],
)
def test_a_step_that_cannot_be_gone_back_to_is_told(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    for step in set(RunDir(folder / "runs/test/short").checkpoint_steps()) - {4, 6, 8}:
        shutil.rmtree(checkpoint(folder, step))
    code, said = ended(folder, "config.yaml", *arguments)
    assert code == EXIT_USAGE and words in said


Spoil = Callable[[Path], None]


def spoil_weights(folder: Path) -> None:
    flip(checkpoint(folder, 6) / "model.safetensors")


def spoil_progress(folder: Path) -> None:
    (checkpoint(folder, 4) / "progress.json").write_text("{")


@pytest.mark.parametrize(
    ("command", "spoil", "words"),
    [
        (("eval", "runs/test/short", "--checkpoint", "6"), spoil_weights, "Take another"),
        (("eval", "runs/test/short"), spoil_progress, "progress.json is not what was saved"),
        (
            ("deploy", "runs/test/short", "--to", "merged", "--checkpoint", "6", "--yes"),
            spoil_weights,
            "Deploy another",
        ),
    ],
)
def test_it_is_neither_evaluated_nor_deployed(
    folder: Path, command: tuple[str, ...], spoil: Spoil, words: str
) -> None:
    spoil(folder)
    code, said = ended(folder, *command[1:], command=command[0])
    assert code == EXIT_FAILED
    assert "is damaged" in said and words in said
