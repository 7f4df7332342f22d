"""W&B in a process of its own each time: it is global state, and its exit is a part of it."""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from art_cli.config.schema import WandbConfig
from art_cli.errors import PreflightError
from art_cli.trackers.wandb import choose_mode

RUN = """
import os, sys
from pathlib import Path
from art_cli.config.schema import WandbConfig
from art_cli.trackers.wandb import WandbTracker
from art_cli.trackers import wandb as module
module.FINISH_SECONDS = float(os.environ.get("FINISH_SECONDS", module.FINISH_SECONDS))
tracker = WandbTracker(
    WandbConfig(mode=sys.argv[1], entity="us"), project="p", name="n", run_id="id1",
    folder=Path(sys.argv[2]), config={"seed": 3}, say=lambda line: print(line, flush=True))
if os.environ.get("KILL_CORE"):
    import time, wandb
    wandb.sdk.wandb_setup.singleton()._connection._proc._process.kill()
    time.sleep(0.3)
for step in range(2):
    tracker.log({"training_step": step, "train/reward": step / 2})
tracker.finish("done")
"""
FAKE_KEY = "0" * 40


def run(mode: str, folder: Path, **env: str) -> tuple[str, float]:
    """Output (stdout and stderr) and seconds, exit included, of a short tracked run."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    clean |= {"HOME": str(folder), "NETRC": str(folder / "netrc")} | env
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", RUN, mode, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=clean,
        cwd=folder,
    )
    return result.stdout + result.stderr, time.monotonic() - began


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.respond(b"hello")

    def do_POST(self) -> None:
        raise NotImplementedError

    def respond(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Fails(Handler):
    """Answers the probe, then 500 to everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.respond(b"", 500)


class FallsSilent(Handler):
    """Takes the run, then never answers again."""

    taken = threading.Event()
    over = threading.Event()

    def do_POST(self) -> None:
        query = self.rfile.read(int(self.headers["content-length"]))
        if b"RunResumeStatus" in query:
            self.respond(b'{"data": {"model": null}}')
        elif b"UpsertBucket" in query and not self.taken.is_set():
            self.taken.set()
            project = {"name": "p", "entity": {"name": "us"}}
            bucket = {"id": "x", "name": "id1", "displayName": "n", "project": project}
            upsert = {"upsertBucket": {"bucket": bucket, "inserted": True}}
            self.respond(json.dumps({"data": upsert}).encode())
        else:
            self.over.wait(30)


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    FallsSilent.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def records(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file: a LevelDB log with its own header, in blocks of 32 KiB."""
    raw, position, joined = path.read_bytes(), 7, b""
    assert raw[:4] == b":W&B"
    while position + 7 <= len(raw):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[position : position + 7])
        joined += raw[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # the whole record, or the last part of one
            yield joined
            joined = b""


def read_wandb(path: Path) -> tuple[list[dict[str, Any]], list[tuple[str, str]], dict[str, Any]]:
    """What was really logged: history rows, (metric, step metric) definitions, config."""
    from wandb.proto import wandb_internal_pb2

    rows, definitions, config = [], [], {}
    for raw in records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            items = record.history.item
            row = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
            rows.append({key: value for key, value in row.items() if key[0] != "_"})
        elif kind == "metric":
            definitions.append((record.metric.glob_name, record.metric.step_metric))
        elif kind == "run":
            config |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
    return rows, definitions, config


def test_offline_everything_logged_is_on_disk_with_its_step_metric(tmp_path: Path) -> None:
    output, _ = run("offline", tmp_path)
    (path,) = tmp_path.glob("wandb/offline-run-*-id1/run-id1.wandb")
    rows, definitions, config = read_wandb(path)
    assert rows == [{"training_step": i, "train/reward": i / 2} for i in (0, 1)]
    assert ("*", "training_step") in definitions and config["seed"] == 3
    first, last = output.splitlines()  # wandb itself says nothing
    assert "mode is offline" in first and last.endswith(f"wandb sync wandb/{path.parent.name}")


def test_a_resumed_offline_run_is_synced_with_its_first_part(tmp_path: Path) -> None:
    output, _ = run("offline", tmp_path)
    time.sleep(1.0)  # the folder's name is made of seconds
    output, _ = run("offline", tmp_path)
    assert output.splitlines()[-1].endswith("wandb sync wandb/offline-run-*")
    assert len(list(tmp_path.glob("wandb/offline-run-*-id1"))) == 2


def test_a_dead_network_means_offline_within_seconds(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    output, seconds = run("online", tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY=FAKE_KEY)
    assert f"offline ({url} does not answer). Upload later: wandb sync wandb/offline-run" in output
    assert seconds < 10
    assert len(output.splitlines()) == 2


def test_a_server_that_fails_neither_hangs_nor_kills(tmp_path: Path) -> None:
    with served(Fails) as url:
        output, seconds = run("auto", tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY=FAKE_KEY)
    assert f"offline ({url} does not take the run: " in output
    assert seconds < 20
    (path,) = tmp_path.glob("wandb/offline-run-*/run-id1.wandb")
    assert len(read_wandb(path)[0]) == 2


def test_a_server_that_falls_silent_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with served(FallsSilent) as url:
        env = {"WANDB_BASE_URL": url, "WANDB_API_KEY": FAKE_KEY, "FINISH_SECONDS": "2"}
        output, seconds = run("online", tmp_path, **env)
    first, last = output.splitlines()
    assert first == f"W&B: {url}/us/p/runs/id1"
    assert "the upload is not complete" in last
    assert "The rest: wandb sync --include-online wandb/run-" in last
    assert seconds < 15
    (path,) = tmp_path.glob("wandb/run-*/run-id1.wandb")
    assert len(read_wandb(path)[0]) == 2


def test_wandb_core_dying_is_told_once_and_the_run_goes_on(tmp_path: Path) -> None:
    output, seconds = run("offline", tmp_path, KILL_CORE="1")
    assert "W&B is switched off, it failed at training step 0" in output
    assert len(output.splitlines()) == 2 and seconds < 10


def test_disabled_does_not_even_import_wandb(tmp_path: Path) -> None:
    output, _ = run("auto", tmp_path, WANDB_MODE="disabled")
    assert output == "" and not (tmp_path / "wandb").exists()


def test_auto_without_a_key_is_offline_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    without_key(monkeypatch)
    assert choose_mode(WandbConfig()) == (
        "offline",
        "no key: neither WANDB_API_KEY nor `wandb login`",
    )


def test_online_without_a_key_is_refused_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    without_key(monkeypatch)
    with pytest.raises(PreflightError, match=r"no key for https://api.wandb.ai.*wandb login"):
        choose_mode(WandbConfig(mode="online"))


def test_a_key_of_wandb_login_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_key(monkeypatch)
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai\n  login user\n  password {FAKE_KEY}\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert choose_mode(WandbConfig(mode="online")) == ("online", "")


def test_importing_the_module_does_not_import_wandb() -> None:
    script = "import sys, art_cli.trackers.wandb; sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", "/nonexistent")
    monkeypatch.setenv("HOME", "/nonexistent")
