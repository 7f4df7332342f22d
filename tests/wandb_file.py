"""Reads what was really logged: a .wandb file, which wandb-core writes and `wandb sync` sends."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 32768


@dataclass(slots=True)
class Artifact:
    """A version of an artifact: what a sync would upload."""

    name: str
    type: str
    aliases: list[str]
    metadata: dict[str, Any]
    files: dict[str, Path]  # where each is on this disk


@dataclass(slots=True)
class WandbFile:
    """The records of a file that tests look at."""

    rows: list[dict[str, Any]] = field(default_factory=list)  # of the history; nested as "a/b"
    steps: list[int] = field(default_factory=list)  # wandb's own, one a row
    definitions: list[tuple[str, str]] = field(default_factory=list)  # metric, its step metric
    config: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Artifact] = field(default_factory=list)  # without those of tables


def read_wandb(path: Path) -> WandbFile:
    """All of a file."""
    from wandb.proto import wandb_internal_pb2

    found = WandbFile()
    for raw in _records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            items = record.history.item
            row = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
            found.rows.append({key: value for key, value in row.items() if key[0] != "_"})
            found.steps.append(row["_step"])
        elif kind == "metric":
            found.definitions.append((record.metric.glob_name, record.metric.step_metric))
        elif kind == "run":
            updates = record.run.config.update
            found.config |= {u.key: json.loads(u.value_json) for u in updates}
        elif kind == "artifact" and record.artifact.type != "run_table":
            found.artifacts.append(_artifact(record.artifact))
    return found


def table_of(path: Path, row: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The rows of a table that a row of the history points at, in the file at `path`."""
    table = json.loads((path.parent / "files" / row[f"{key}/path"]).read_text())
    return [dict(zip(table["columns"], cells, strict=True)) for cells in table["data"]]


def _artifact(record: Any) -> Artifact:
    return Artifact(
        name=record.name,
        type=record.type,
        aliases=list(record.aliases),
        metadata=json.loads(record.metadata),
        files={entry.path: Path(entry.local_path) for entry in record.manifest.contents},
    )


def _records(path: Path) -> Iterator[bytes]:
    """A LevelDB log with its own header, in blocks."""
    raw, position, joined = path.read_bytes(), 7, b""
    assert raw[:4] == b":W&B"
    while position + 7 <= len(raw):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[position : position + 7])
        joined += raw[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # the whole record, or the last part of one
            yield joined
            joined = b""
