"""W&B in a process of its own each time: it is global state, and its exit is a part of it."""

import json
import os
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
from loopback_wandb import LoopbackWandb
from wandb_file import read_wandb

from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import AdapterConfig, ModelConfig
from art_cli.config.sections.track import TrackConfig, WandbConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.errors import PreflightError
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.wandb.files import checkpoints_to_upload
from art_cli.runs.trackers.wandb.server import choose_mode
from art_cli.system.checksums import write_sums

RUN = """
import json, os, sys, time
from pathlib import Path
import art_cli.runs.trackers.wandb.tracker as tracker_file
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.track import TrackConfig, WandbConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.wandb.tracker import WandbTracker
run = RunDir(Path(sys.argv[2]))
(run.root / "run.id").write_text("id1")
experiment = Experiment(
    project="p", name="n", env=EnvConfig(use="e"), model=ModelConfig(base="tiny"),
    train=TrainConfig(steps=2), track=TrackConfig(wandb=WandbConfig(mode=sys.argv[1], entity="us")))
vars(tracker_file).update(json.loads(os.environ["DEADLINES"]))
hold = Path("hold")
class Slow:  # wandb is half imported as long as there is a file `hold`
    def find_spec(self, name, path=None, target=None):
        while name == "wandb.sdk" and hold.exists():
            time.sleep(0.01)
sys.meta_path.insert(0, Slow())
tracker = WandbTracker(experiment, run, {"seed": 3}, lambda line: print(line, flush=True))
if os.environ.get("KILL_CORE"):
    import wandb
    core = wandb.sdk.wandb_setup.singleton()._connection._proc._process
    core.kill()
    core.wait()
    time.sleep(0.3)
for step in range(2):
    tracker.log({"training_step": step, "train/reward": step / 2})
if hold.exists():
    print("all is logged", flush=True)
    if hold.read_text() == "until all is logged":
        hold.unlink()
tracker.finish("done")
"""
FAKE_KEY = "0" * 40


def run(mode: str, folder: Path, deadlines: dict[str, float] | None = None, **env: str) -> str:
    """Output (stdout and stderr) of a short tracked run, which ends without an error.

    It has patience, so that its lines always come in the same order.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    clean |= {"HOME": str(folder), "NETRC": str(folder / "netrc")}
    clean |= {"DEADLINES": json.dumps({"PATIENCE_SECONDS": 600} | (deadlines or {}))} | env
    result = subprocess.run(
        [sys.executable, "-c", RUN, mode, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env=clean,
        cwd=folder,
    )
    return result.stdout + result.stderr


class Fails(BaseHTTPRequestHandler):
    """Answers 500 to everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class OnlyGreets(Fails):
    """Answers the first question, and never again."""

    asked = threading.Event()

    def do_POST(self) -> None:
        if self.asked.is_set():
            time.sleep(600)
        else:
            self.asked.set()
            super().do_POST()


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_offline_everything_logged_is_on_disk_with_its_step_metric(tmp_path: Path) -> None:
    output = run("offline", tmp_path)
    (path,) = tmp_path.glob("wandb/offline-run-*-id1/run-id1.wandb")
    found = read_wandb(path)
    assert found.rows == [{"training_step": i, "train/reward": i / 2} for i in (0, 1)]
    assert ("*", "training_step") in found.definitions and found.config["seed"] == 3
    first, last = output.splitlines()  # wandb itself says nothing
    assert "mode is offline" in first and last.endswith(f"wandb sync wandb/{path.parent.name}")


@pytest.mark.slow
def test_a_dead_network_means_offline(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    output = run("online", tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY=FAKE_KEY)
    assert f"offline ({url} does not answer). Upload later: wandb sync wandb/offline-run" in output
    assert len(output.splitlines()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("handler", [Fails, OnlyGreets])
def test_a_server_that_does_not_take_the_run_neither_hangs_nor_kills(
    handler: type[BaseHTTPRequestHandler], tmp_path: Path
) -> None:
    with served(handler) as url:
        short = {"ONLINE_INIT_SECONDS": 2.0}
        output = run("auto", tmp_path, short, WANDB_BASE_URL=url, WANDB_API_KEY=FAKE_KEY)
    assert f"offline ({url} does not take the run: " in output
    assert rows_offline(tmp_path) == 2


@pytest.mark.slow
def test_a_server_that_is_silent_means_offline(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        server.die()
        output = run("auto", tmp_path, WANDB_BASE_URL=server.url, WANDB_API_KEY=FAKE_KEY)
    assert f"offline ({server.url} does not answer)" in output
    assert rows_offline(tmp_path) == 2


@pytest.mark.slow
def test_a_wrong_key_means_offline(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        output = run("online", tmp_path, WANDB_BASE_URL=server.url, WANDB_API_KEY=FAKE_KEY)
    assert "offline (" in output and "does not take the run: " in output
    assert rows_offline(tmp_path) == 2 and server.runs == {}


def rows_offline(folder: Path) -> int:
    """How many rows wait for `wandb sync`."""
    (path,) = folder.glob("wandb/offline-run-*/run-id1.wandb")
    return len(read_wandb(path).rows)


@pytest.mark.slow
def test_wandb_core_dying_is_told_once_and_the_run_goes_on(tmp_path: Path) -> None:
    output = run("offline", tmp_path, KILL_CORE="1")
    assert "W&B is switched off, it failed at training step 0" in output
    assert len(output.splitlines()) == 2


@pytest.mark.slow
def test_a_slow_import_does_not_hold_up_the_run_and_wandb_gets_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "hold").write_text("until all is logged")
    output = run("offline", tmp_path, {"PATIENCE_SECONDS": 0.1})
    slow, logged, *rest = output.splitlines()
    assert "W&B is slow to start. The run goes on" in slow and logged == "all is logged"
    assert any("track.wandb.mode is offline" in line for line in rest)
    assert rest[-1].startswith("W&B: this run was logged offline. Upload it: wandb sync")
    assert rows_offline(tmp_path) == 2


def test_an_import_that_never_ends_leaves_the_run_without_wandb(tmp_path: Path) -> None:
    (tmp_path / "hold").write_text("for ever")
    output = run("offline", tmp_path, {"IMPORT_SECONDS": 0.5})
    assert output == (
        "W&B is switched off, `import wandb` fails: no answer after 0.5 s. "
        "metrics.jsonl has everything.\nall is logged\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", ["raise OSError('broken')", "raise SystemExit('broken')"])
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_an_import_that_fails_leaves_the_run_without_wandb(
    mode: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / "wandb.py").write_text(line)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with served(Fails) as url:
        env = {"PYTHONPATH": path, "WANDB_BASE_URL": url, "WANDB_API_KEY": FAKE_KEY}
        (said,) = run(mode, tmp_path, {}, **env).splitlines()
    assert said.startswith("W&B is switched off, `import wandb` fails: ") and "broken" in said


def test_disabled_does_not_even_import_wandb(tmp_path: Path) -> None:
    output = run("auto", tmp_path, WANDB_MODE="disabled")
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


@pytest.mark.parametrize(
    ("upload", "adapter", "expected"),
    [
        ("auto", True, {2: ["best"], 4: ["last"]}),
        ("auto", False, {}),
        ("on", False, {2: ["best"], 4: ["last"]}),
        ("off", True, {}),
    ],
)
def test_a_whole_model_is_uploaded_only_where_that_is_asked_for(
    upload: Any, adapter: bool, expected: dict[int, list[str]], tmp_path: Path
) -> None:
    run = with_checkpoints(tmp_path, {0: None, 2: 0.7, 4: 0.6})
    assert checkpoints_to_upload(an_experiment(upload, adapter), run) == expected


def test_one_checkpoint_may_be_best_and_last_or_nobody_knows_the_best(tmp_path: Path) -> None:
    experiment = an_experiment("auto", adapter=True)
    both = with_checkpoints(tmp_path / "both", {2: 0.5, 4: 0.6})
    assert checkpoints_to_upload(experiment, both) == {4: ["best", "last"]}
    unknown = with_checkpoints(tmp_path / "unknown", {2: None, 4: None})
    assert checkpoints_to_upload(experiment, unknown) == {4: ["last"]}
    assert checkpoints_to_upload(experiment, with_checkpoints(tmp_path / "none", {})) == {}


def an_experiment(upload: Any, adapter: bool) -> Experiment:
    return Experiment(
        name="n",
        env=EnvConfig(use="e"),
        model=ModelConfig(base="b", adapter=AdapterConfig() if adapter else None),
        train=TrainConfig(steps=4),
        track=TrackConfig(wandb=WandbConfig(upload=upload)),
    )


def with_checkpoints(folder: Path, val_rewards: dict[int, float | None]) -> RunDir:
    run = RunDir.create(folder)
    for step, reward in val_rewards.items():
        run.checkpoint(step).mkdir()
        progress = json.dumps({"step": step, "val_reward": reward})
        (run.checkpoint(step) / "progress.json").write_text(progress)
        write_sums(run.checkpoint(step))
    return run


def test_importing_the_module_does_not_import_wandb() -> None:
    script = "import sys, art_cli.runs.trackers.wandb.tracker; sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", "/nonexistent")
    monkeypatch.setenv("HOME", "/nonexistent")
