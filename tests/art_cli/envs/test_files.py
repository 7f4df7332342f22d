"""Files of a folder that a program of somebody else's has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from art_cli.envs.files import read_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, links to it, a pipe, and a file outside of it."""
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "deep" / "five").write_bytes(b"12345")
    (folder / "link").symlink_to(folder / "deep" / "five")
    (folder / "linked").symlink_to(folder / "deep")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize(("limit", "content"), [(6, b"12345"), (5, b"12345"), (4, None)])
def test_a_file_may_have_as_many_bytes_as_the_limit(
    folder: Path, limit: int, content: bytes | None
) -> None:
    assert read_below(folder, "deep/five", limit) == content


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../secret", "deep/../deep/five", "missing", "deep", "five"),
        *("link", "linked/five", "pipe", "deep/five/more", "a\0b"),
    ],
)
def test_what_is_no_plain_file_below_the_folder_is_none(folder: Path, name: str) -> None:
    assert read_below(folder, name, 100) is None
    assert read_below(folder, str(folder.parent / "secret"), 100) is None
