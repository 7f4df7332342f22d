"""The program as a wheel."""

import base64
import csv
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from art_cli.backends.cloud.wheel import pack_wheel


def test_the_wheel_is_this_program_and_the_same_each_time(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    wheel, again = pack_wheel(tmp_path / "a"), pack_wheel(tmp_path / "b")
    assert wheel.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        [record] = [n for n in archive.namelist() if n.endswith("/RECORD")]
        for name, digest, _ in csv.reader(archive.read(record).decode().splitlines()):
            if digest:
                sha = hashlib.sha256(archive.read(name)).digest()
                assert digest == "sha256=" + base64.urlsafe_b64encode(sha).rstrip(b"=").decode()


def test_pip_installs_the_wheel_and_it_runs(tmp_path: Path) -> None:
    wheel, target = pack_wheel(tmp_path), tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, timeout=600)
    code = "import art_cli, art_envs; print(art_cli.__file__, art_envs.__file__)"
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert out.stdout.count(str(target)) == 2
    assert (target / "art_cli" / "cli" / "template" / "tools" / "env.py").exists()
