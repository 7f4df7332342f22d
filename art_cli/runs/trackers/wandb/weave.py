"""Trajectories as traces in Weave, W&B's viewer of what agents did.

What lies in trajectories/ is sent, oldest first, by a thread that nobody waits for. What has
arrived is noted in the run's directory: a server that is silent, or a kill, costs nothing that a
later step, or the run's --resume, does not send.

The service is asked as weave's own client asks it; the package itself patches every library of
models that it finds in the process, and is not needed.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.wandb.background import BackgroundQueue
from art_cli.runs.trackers.wandb.samples import shortened
from art_cli.runs.trackers.wandb.server import DEFAULT_URL, base_url, find_key
from art_cli.types import Split

DEFAULT_TRACE_URL = "https://trace.wandb.ai"
REQUEST_SECONDS = 10.0  # in which a request gets on
BATCH_BYTES = 2**22  # the service takes 31 MiB
SENT = "weave-sent.txt"  # in wandb/: the files of trajectories that have arrived
SPLITS: tuple[Split, ...] = ("train", "val", "test")
TOO_BUSY = (408, 429)
Call = dict[str, Any]


class WeaveTraces:
    """Sends the traces of one run. No method raises, and none but `finish` waits."""

    def __init__(self, run: RunDir, project: str, say: Callable[[str], None]) -> None:
        """`project` is ENTITY/PROJECT, and exists."""
        self._run = run
        self._project = project
        self._say = say
        self._url: str = f"{trace_url()}/v2/{project}/calls/complete"
        self._key = find_key()
        self._sent = run.root / "wandb" / SENT
        self._problem = "" if self._key else "there is no API key"
        self._background = BackgroundQueue("art-weave")
        self.wake()

    def wake(self) -> None:
        """Look again: there may be more to send."""
        if self._key:
            self._background.hand(self._send_all)

    def finish(self, seconds: float) -> None:
        """Wait so long at the most for what is on its way."""
        caught_up = threading.Event()
        self.wake()
        self._background.hand(caught_up.set)
        if not caught_up.wait(seconds) or self._problem or not self._key:
            missing = len(self._waiting())
            why = self._problem or "it takes too long"
            self._say(
                f"Weave lacks the trajectories of {missing} files: {why}. --resume sends them"
            )

    def _waiting(self) -> list[tuple[int, Split]]:
        """Return the files that have not been sent, in the order of the run."""
        sent = set(self._sent.read_text().split()) if self._sent.exists() else set()
        there: list[tuple[int, Split]] = []
        for split in SPLITS:
            for step in self._run.trajectory_steps(split):
                there.append((step, split))
        return sorted((file for file in there if _name(*file) not in sent), key=lambda f: f[0])

    # -- in the background thread -----------------------------------------------------------

    def _send_all(self) -> None:
        try:
            self._problem = ""
            for step, split in self._waiting() if self._key else []:
                rows = self._run.read_trajectories(step, split)
                calls = (c for row in rows for c in calls_of(row, self._project, self._run.id()))
                for batch in _batches(calls):
                    self._post(batch)
                with self._sent.open("a") as file:
                    file.write(f"{_name(step, split)}\n")
        except httpx.HTTPStatusError as e:
            code = e.response.status_code
            self._problem = f"HTTP {code} {e.response.text[:160]}".strip()
            if code < 500 and code not in TOO_BUSY:
                self._key = None  # it will say so the next time, too
                self._say(f"Weave is switched off: {trace_url()} says {self._problem}")
        except Exception as e:  # of many kinds: the network's, a disk that is full
            self._problem = f"{trace_url()}: {e or type(e).__name__}"

    def _post(self, batch: bytes) -> None:
        headers = {"content-type": "application/json"}
        login = httpx.BasicAuth("api", self._key or "")
        answer = httpx.post(
            self._url, content=batch, headers=headers, auth=login, timeout=REQUEST_SECONDS
        )
        answer.raise_for_status()


def trace_url() -> str:
    """Return where traces go, as weave's own client finds it."""
    own = base_url()
    default = DEFAULT_TRACE_URL if own == DEFAULT_URL else f"{own}/traces"
    return os.environ.get("WF_TRACE_SERVER_URL", default).rstrip("/")


def calls_of(row: dict[str, Any], project: str, run_id: str) -> Iterator[Call]:
    """Return a trajectory as a trace: its turns, and in them the tools that they called.

    The ids follow from where it lies in the run, so that one sent again is the same. When a turn
    was said is not kept: times say in which order.
    """
    place = {key: row[key] for key in ("step", "split", "group", "index")}
    trace = _id(run_id, *place.values())
    began = datetime.now(UTC)
    heard: list[dict[str, Any]] = []
    turns: list[Call] = []
    versions = iter(row["policy_versions"])

    def call(id: str, parent: str | None, name: str, **more: Any) -> Call:
        at = (began + timedelta(milliseconds=len(turns))).isoformat()
        return {
            "id": id,
            "trace_id": trace,
            "parent_id": parent,
            "project_id": project,
            "op_name": name,
            "started_at": at,
            "ended_at": at,
            "wb_run_id": f"{project}/{run_id}",
            "wb_run_step": row["step"],
            "summary": {},
            **more,
        }

    opening, turn, asked = None, trace, []
    for m in row["messages"]:
        said = {**m, "content": shortened(m.get("content") or "")}
        if m["role"] == "assistant":
            opening = heard if opening is None else opening
            turn, asked = _id(trace, len(turns)), list(m.get("tool_calls") or [])
            about = {"policy_version": next(versions, None), **place}
            inputs = {"messages": heard}
            turns.append(call(turn, trace, "turn", inputs=inputs, output=said, attributes=about))
            heard = []
            continue
        heard.append(said)
        if m["role"] == "tool":
            done = asked.pop(0) if asked else {}
            name, inputs = m.get("name") or done.get("name") or "tool", done.get("arguments")
            inputs = inputs if isinstance(inputs, dict) else {"arguments": inputs}
            id, output = _id(trace, len(turns)), said["content"]
            turns.append(call(id, turn, name, inputs=inputs, output=output, attributes=place))
    yield call(
        trace,
        None,
        "trajectory",
        display_name=f"{row['scenario_id']} #{row['index']}",
        inputs={"scenario": row["scenario_id"], "messages": heard if opening is None else opening},
        output={
            "reward": row["reward"],
            "ended_by": row["stop_reason"],
            "judge": row["logs"],
            "metrics": row["metrics"],
        },
        attributes={"policy_versions": sorted(set(row["policy_versions"])), **place},
        exception=row["error"],
    )
    yield from turns


def _batches(calls: Iterator[Call]) -> Iterator[bytes]:
    """Return what fits into a request."""
    batch, size = [], 0
    for call in calls:
        text = json.dumps(call)
        if batch and size + len(text) > BATCH_BYTES:
            yield f'{{"batch": [{", ".join(batch)}]}}'.encode()
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield f'{{"batch": [{", ".join(batch)}]}}'.encode()


def _name(step: int, split: Split) -> str:
    return f"{split}-{step}"


def _id(*place: Any) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(map(str, place))))
