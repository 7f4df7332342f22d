"""Answers on disk: shared between processes, and never the reason that a run fails."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from art_cli.llms.judges.cache import AnswerCache
from art_cli.system.files import cache_folder

KEY = "ab" * 32
# Processes that begin at the same time: each writes, reads and prints its name of a trajectory.
WRITER = """
import sys, time
from pathlib import Path
from art_cli.llms.judges.cache import AnswerCache
from art_cli.system.files import cache_folder
folder, at, text = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] * 20_000
time.sleep(max(0, at - time.time()))
cache = AnswerCache(folder)
for _ in range(30):
    cache.put("ab" * 32, text)
    assert cache.get("ab" * 32)[::20_000] in ("a", "b", "c"), "torn"
print(cache.id(b"a trajectory"))
"""


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    AnswerCache(tmp_path / "c").put(KEY, "an answer \ud800 \u200b")
    assert AnswerCache(tmp_path / "c").get(KEY) == "an answer \ud800 \u200b"
    assert AnswerCache(tmp_path / "c").get("cd" * 32) is None


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = AnswerCache(None)
    cache.put(KEY, "an answer")
    assert cache.get(KEY) is None and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"answer": 5}', b'{"answer": null}', b"[]", b"\xff\x00", b"{}", b"[" * 10**5],
)
def test_a_file_that_is_broken_is_one_that_is_not_there(tmp_path: Path, content: bytes) -> None:
    cache = AnswerCache(tmp_path)
    cache.put(KEY, "an answer")
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(content)
    assert cache.get(KEY) is None
    cache.put(KEY, "another")
    assert cache.get(KEY) == "another"


def test_the_key_depends_on_all_that_was_asked() -> None:
    cache = AnswerCache(None)
    asked = (["openai/o3", {"effort": "low"}], [{"role": "user", "content": "\ud800"}])
    key = cache.key(*asked)
    assert key == AnswerCache(None).key(*asked) and len(key) == 64
    assert key != cache.key(["openai/o3", {"effort": "high"}], asked[1])
    assert key != cache.key(asked[0], [{"role": "user", "content": "\ud801"}])


def test_names_follow_from_the_content_and_a_secret_of_the_machine(tmp_path: Path) -> None:
    here, there = AnswerCache(tmp_path / "here"), AnswerCache(tmp_path / "there")
    assert here.id(b"x") == AnswerCache(tmp_path / "here").id(b"x")
    assert len({here.id(b"x"), here.id(b"y"), there.id(b"x"), AnswerCache(None).id(b"x")}) == 4
    assert (tmp_path / "here" / "secret").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_secret_that_a_crash_has_spoilt_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    first = AnswerCache(tmp_path).id(b"x")
    assert len((tmp_path / "secret").read_bytes()) == 32
    assert AnswerCache(tmp_path).id(b"x") == first


def test_a_folder_that_cannot_be_made_costs_the_cache_not_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = AnswerCache(tmp_path / "file" / "judge")
    cache.put(KEY, "an answer")
    assert cache.get(KEY) is None and cache.id(b"x").startswith("t-")


def test_processes_that_write_at_once_share_one_secret_and_whole_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "c"), str(time.time() + 1)]
    started = [
        subprocess.Popen([*command, text], stdout=subprocess.PIPE, text=True) for text in "abc"
    ]
    names = {process.communicate(timeout=600)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(names) == 1 and names.pop().startswith("t-")
    left = sorted(p.name for p in (tmp_path / "c").rglob("*") if p.is_file())
    assert left == [f"{KEY}.json", "secret"]


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder("judge") == Path("/elsewhere/art/judge")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder("judge") == Path("/home/someone/.cache/art/judge")


def test_files_hold_the_answer_and_nothing_else(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path)
    cache.put(cache.key("a secret question"), "an answer")
    (file,) = tmp_path.rglob("*.json")
    assert json.loads(file.read_text()) == {"answer": "an answer"}
