"""A run in MLflow, Trackio and TensorBoard, read back by their own packages from real stores.

MLflow's server takes the spans of OTLP, too, and shows them as agents, chat models and tools.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from own_venv import ROOT, python_with
from short_run import CONFIG

from art_cli.runs.directory import RunDir

TRACK = """
track:
  mlflow: {{uri: "{url}"}}
  otlp: {{endpoint: "{url}/v1/traces", headers: {{x-mlflow-experiment-id: "0"}}, groups: null}}
  tensorboard: true
  trackio: true
"""
READ = """
import json, sys
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

url, folder = sys.argv[1:]
client = MlflowClient(url)
experiment = client.get_experiment_by_name("test").experiment_id
runs = client.search_runs([experiment])
history = client.get_metric_history(runs[0].info.run_id, "train/reward")
traces = client.search_traces(locations=["0"], max_results=100)
# What a slow server has not answered is sent again, with the same ids; MLflow may then keep both.
spans = {s.span_id: s for t in traces for s in t.data.spans}
events = EventAccumulator(folder).Reload().Scalars("train/reward")
print(json.dumps({
    "runs": [[run.info.run_name, run.info.status, run.data.params["train.steps"]] for run in runs],
    "mlflow": [[m.step, m.value] for m in history],
    "tensorboard": [[event.step, event.value] for event in events],
    "spans": [[s.name, s.span_type, s.inputs, s.outputs] for s in spans.values()],
}))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """That of an environment with the three packages; what else `art` needs is on its path."""
    return python_with("trackers", "mlflow==3.*", "trackio==0.43.*", "tensorboard==2.*")


@pytest.fixture
def mlflow_url(python: Path, tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, store = f"http://127.0.0.1:{port}", f"sqlite:///{tmp_path}/mlflow.db"
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [str(python), "-m", "mlflow", "server", "--backend-store-uri", store, *where]
    # Without what MLflow runs for evaluations: a dozen processes.
    env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, start_new_session=True) as server:
        try:
            until = time.monotonic() + 600
            while not _answers(f"{url}/health"):
                assert server.poll() is None and time.monotonic() < until
                time.sleep(0.2)
            yield url
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, 15)


def _answers(url: str) -> bool:
    with suppress(OSError):
        return urllib.request.urlopen(url, timeout=5).status == 200
    return False


def test_a_resumed_run_goes_on_where_it_was_in_all_of_them(
    python: Path, mlflow_url: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG + TRACK.format(url=mlflow_url))
    path = [ROOT, ROOT / "envs", sysconfig.get_paths()["purelib"]]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    env |= {"TRACKIO_DIR": str(tmp_path / "trackio"), "HOME": str(tmp_path)}

    def art(*words: str) -> str:
        command = [str(python), "-m", "art_cli", "run", "config.yaml", *words]
        more: Any = {"cwd": tmp_path, "env": env, "text": True, "timeout": 900}
        return subprocess.run(command, check=True, capture_output=True, **more).stdout

    art("train.steps=2")
    art("train.steps=3", "--resume")
    run = RunDir(tmp_path / "runs" / "test" / "short")
    script = [str(python), "-c", READ, mlflow_url, str(run.root / "tensorboard")]
    done = subprocess.run(script, env=env, check=True, capture_output=True, text=True, timeout=600)
    seen = json.loads(done.stdout.splitlines()[-1])
    asked = ["get", "metric", "--project", "test", "--run", "short", "--metric", "train/reward"]
    trackio = [str(python.with_name("trackio")), *asked, "--json"]
    done = subprocess.run(trackio, env=env, check=True, capture_output=True, text=True, timeout=600)
    kept = [[point["step"], point["value"]] for point in json.loads(done.stdout)["values"]]
    metrics = run.read_metrics()
    rows = [[r["training_step"], r["train/reward"]] for r in metrics if "train/reward" in r]
    assert seen["runs"] == [["short", "FINISHED", "2"]] and len(rows) == 3
    assert seen["mlflow"] == kept == rows
    assert [[step, pytest.approx(value)] for step, value in seen["tensorboard"]] == rows
    kinds = {name.split()[0]: kind for name, kind, _, _ in seen["spans"]}
    assert kinds["invoke_agent"] == "AGENT" and kinds["chat"] == "CHAT_MODEL"
    agents = [span for span in seen["spans"] if span[0].startswith("invoke_agent")]
    assert len(agents) == 3 * 16 + 3 * 8
    chats = [span for span in seen["spans"] if span[0].startswith("chat")]
    assert all(inputs and outputs for _, _, inputs, outputs in chats)
