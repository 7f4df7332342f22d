"""Weave's official client, in an environment of its own, sends traces just as `art run` does.

Its types are the contract: they know every field of ours, and take its value.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loopback_wandb import LoopbackWandb
from own_venv import python_with

from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.wandb.weave import WeaveTraces, calls_of
from art_cli.types import Scenario, Trajectory, TrajectoryGroup

SEND = """
import json, sys
from pydantic import TypeAdapter
from weave.trace_server_bindings.remote_http_trace_server import RemoteHTTPTraceServer
from weave.vendor.weave_server_sdk.types.v2_call_complete_params import Batch

url, key = sys.argv[1:]
calls = json.load(sys.stdin)
for call in calls:
    assert set(call) <= set(Batch.__annotations__), set(call) - set(Batch.__annotations__)
    TypeAdapter(Batch).validate_python(call)
server = RemoteHTTPTraceServer(url)
server.set_auth(("api", key))
server.calls_complete({"batch": calls})
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """That of an environment with the official client."""
    return python_with("weave", "weave==0.54.*")


def test_the_official_client_sends_the_same(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "runs" / "test" / "short")
    (run.root / "wandb").mkdir(parents=True)
    run.write_trajectories(4, "train", [TrajectoryGroup([trajectory(0.5), trajectory(None)])])
    with LoopbackWandb() as ours, LoopbackWandb() as theirs:
        monkeypatch.setenv("WANDB_BASE_URL", ours.url)
        monkeypatch.setenv("WANDB_API_KEY", ours.key)
        said: list[str] = []
        WeaveTraces(run, "us/p", said.append).finish(10)
        assert said == []
        env = {"WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)}
        subprocess.run(
            [str(python), "-c", SEND, f"{theirs.url}/traces", theirs.key],
            input=json.dumps(list(ours.calls.values())),
            env=env,
            text=True,
            check=True,
            timeout=60,
        )
        assert ours.calls == theirs.calls and len(ours.calls) == 2 * 4
    rows = run.read_trajectories(4, "train")
    assert {c["id"] for row in rows for c in calls_of(row, "us/p", run.id())} == set(ours.calls)


def trajectory(reward: float | None) -> Trajectory:
    call: Any = {"name": "look", "arguments": {"at": "ü"}}
    return Trajectory(
        scenario=Scenario(id="train-0", split="train", seed=1),
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "what is it?"},
            {"role": "assistant", "content": "<tool_call>...", "tool_calls": [call]},
            {"role": "tool", "content": "seven", "name": "look"},
            {"role": "assistant", "content": "seven"},
        ],
        reward=reward,
        error=None if reward else "the env failed",
        logs=["it looked first"],
        policy_versions=[3, 3],
    )
