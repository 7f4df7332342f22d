"""What is wrong with a folder is found by its checksums, and said with the file's name."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from art_cli.system.checksums import SUMS, damage, write_sums


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With two files and their checksums."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    (tmp_path / "sub" / "b").write_text("b")
    write_sums(tmp_path)
    return tmp_path


def test_sha256sum_reads_them(folder: Path) -> None:
    command = ["sha256sum", "--check", "--strict", SUMS]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert said == "a.bin: OK\nsub/b: OK\n"
    assert damage(folder) is None


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0c", "\x1c"])
def test_a_name_may_hold_a_character_that_ends_lines_elsewhere(
    folder: Path, character: str
) -> None:
    (folder / f"a{character}b").write_text("c")
    write_sums(folder)
    assert damage(folder) is None
    (folder / f"a{character}b").write_text("d")
    assert "is not what was saved" in str(damage(folder))


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("a.bin", lambda f: f.write_bytes(b"\x01" + f.read_bytes()[1:]), "a.bin is not what was"),
        ("a.bin", lambda f: f.write_bytes(f.read_bytes()[:-1]), "a.bin is not what was saved"),
        ("a.bin", lambda f: f.write_bytes(b""), "a.bin is not what was saved"),
        ("a.bin", Path.unlink, "a.bin is missing"),
        ("a.bin", replace_by_folder, "a.bin is missing"),
        ("sub/b", Path.unlink, "sub/b is missing"),
        ("c", lambda f: f.write_text("new"), f"c has no line in {SUMS}"),
        (SUMS, lambda f: f.write_text(""), f"a.bin has no line in {SUMS}"),
        (SUMS, lambda f: f.write_bytes(f.read_bytes()[:-5]), "s is missing"),
        (SUMS, lambda f: f.write_bytes(b"\xff\x00"), f"{SUMS}:1 is no checksum"),
        (SUMS, replace_by_folder, "Is a directory"),
        (SUMS, Path.unlink, f"it has no {SUMS}"),
    ],
)
def test_damage_is_named(
    folder: Path, name: str, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(folder / name)
    assert words in (damage(folder) or "nothing")


def test_only_what_concerns_somebody_is_looked_at(folder: Path) -> None:
    (folder / "a.bin").write_text("spoilt")
    assert damage(folder, lambda name: name == "sub/b") is None
    (folder / ".DS_Store").touch()
    write_sums(folder)
    assert damage(folder) is None and "DS_Store" not in (folder / SUMS).read_text()
