"""What is read from disk may be damaged: what is good is taken, the rest is told with its place."""

import os
from pathlib import Path

import pytest

from art_cli.system.files import GrowingLines, atomic_write, read_lines, read_text, to_append


def test_damaged_lines_are_named_and_all_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    deep = b"[" * 100_000
    bad = [b'{"n": ', b"\xff\xfe{}", b"\x00\x01", b"[1]", b"7", deep]
    file.write_bytes(b'{"n": 1}\n' + b"\n".join(bad) + b'\n\n{"n": 2}\n{"n": 3')
    rows, damaged = read_lines(file)
    assert rows == [{"n": 1}, {"n": 2}]
    why = [
        "Expecting value at column 7",
        *["Expecting value at column 1"] * 2,
        *["it is no object"] * 2,
        "it cannot be parsed",
    ]
    told = zip(range(2, 8), why, strict=True)
    assert damaged == [f"{file}:{n} is damaged and left out: {reason}" for n, reason in told]


def test_a_last_line_that_only_lacks_its_end_counts(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}')
    assert read_lines(tmp_path / "rows.jsonl") == ([{"n": 1}, {"n": 2}], [])


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "missing") == ([], [])
    assert read_lines(tmp_path) == ([], [f"{tmp_path}: cannot be read: Is a directory"])


def test_a_text_is_read_without_a_byte_order_mark_and_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    assert read_text(tmp_path / "text", 7) == "one\ntwo"
    with pytest.raises(OSError, match="longer than"):
        read_text(tmp_path / "text", 6)
    with pytest.raises(OSError, match="a pipe or a device"):
        read_text(Path("/dev/zero"))


def test_nothing_is_appended_through_a_link_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    own, link, pipe = (tmp_path / name for name in ("own", "link", "pipe"))
    for text in ("one\n", "two\n"):
        with open(own, "a", opener=to_append) as file:
            file.write(text)
    link.symlink_to(own)
    os.mkfifo(pipe)
    for path in (link, pipe, Path("/dev/null"), tmp_path):
        refused = pytest.raises(OSError, match=r"not a file|Is a directory")
        with refused, open(path, "a", opener=to_append):
            pass
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="not a file"), open(pipe, "a", opener=to_append):
        pass
    os.close(reader)
    assert own.read_text() == "one\ntwo\n"


def test_lines_of_a_file_that_grows_are_read_once(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    lines = GrowingLines(file)
    assert lines.read() == ([], True)
    file.write_text('{"n": 1}\nno\n{"n": ')
    assert lines.read() == ([{"n": 1}], True)
    assert lines.damaged == [f"{file}:2 is damaged and left out: Expecting value at column 1"]
    assert lines.read() == ([], False)
    with open(file, "a") as grows:
        grows.write("2}\n7\n")
    assert lines.read() == ([{"n": 2}], False)
    assert [line.partition(" is damaged")[0] for line in lines.damaged] == [
        f"{file}:{n}" for n in (2, 4)
    ]
    atomic_write(file, '{"n": 1}\n' + '{"n": 5}\n' * 9)
    assert lines.read() == ([{"n": 1}, *[{"n": 5}] * 9], True) and lines.damaged == []
