"""A W&B server for tests: a real HTTP server that keeps what wandb-core and `wandb sync` send it.

    with LoopbackWandb() as server:
        run(WANDB_BASE_URL=server.url, WANDB_API_KEY=server.key)
    server.runs["id1"].rows

It answers what they ask, as recorded from wandb 0.31; it was not compared with the real service.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import Loopback
from loopback_otlp import spans_in

OPERATION = re.compile(r"(?:query|mutation)\s+(\w+)")
PROJECT = {"id": "p", "internalId": "p", "name": "p", "entity": {"name": "us"}}


@dataclass(slots=True)
class Version:
    """A version of an artifact."""

    id: str
    name: str
    type: str
    aliases: set[str]
    digest: str
    state: str = "PENDING"
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """What is known of a run."""

    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the history, as they came
    files: dict[str, bytes] = field(default_factory=dict)  # tables among them
    exit_code: int | None = None


class LoopbackWandb(Loopback):
    """See the head of this file. The runs' project is p of entity us, whatever they say.

    Each file of an artifact takes `slow` seconds.
    """

    key = "1" * 40

    def __init__(self, slow: float = 0.0) -> None:
        self._slow = slow
        self.runs: dict[str, Run] = {}
        self.versions: list[Version] = []
        self.spans: dict[str, dict[str, Any]] = {}  # Weave's, by id
        self.num_spans = 0  # that were sent, some of them perhaps again
        self.trace_headers: dict[str, str] = {}  # of the last request of spans
        self.traces_say: int | None = None  # an HTTP status: Weave's part of it refuses
        self._dead = threading.Event()
        self._lock = threading.Lock()
        super().__init__(self._handler())

    def die(self) -> None:
        """From now on connections are taken, and nothing is answered."""
        self._dead.set()

    def models(self) -> dict[str, Version]:
        """By alias: the versions that are complete, but for those of tables."""
        done = [v for v in self.versions if v.state == "COMMITTED" and v.type != "run_table"]
        return {f"{v.name}:{alias}": v for v in done for alias in v.aliases}

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                headers = {key.lower(): value for key, value in self.headers.items()}
                status, answer = server._answer(self.path, body, headers)
                if server._dead.is_set():
                    server.closing.wait(3600)
                    return
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler

    def _answer(
        self, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        head, _, rest = path.removeprefix("/").partition("/")
        if rest.startswith("artifact/"):
            self.closing.wait(self._slow)
        with self._lock:
            if head == "put":  # as with the real one, the address is the permission
                self._put(rest, body)
                return 200, {}
            if (
                headers.get("authorization")
                != "Basic " + base64.b64encode(f"api:{self.key}".encode()).decode()
            ):
                return 401, {"errors": [{"message": "invalid API key"}]}
            if head == "traces":
                return self._trace(rest, body, headers), {}
            if head == "files":
                self._stream(rest.split("/")[2], json.loads(body))
                return 200, {}
            if head == "graphql":
                asked = json.loads(body)
                name = OPERATION.search(asked["query"])
                reply = getattr(self, f"_on_{name and name[1]}", lambda **_: {})
                return 200, {"data": reply(**(asked.get("variables") or {}))}
        return 200, {}

    def _trace(self, where: str, body: bytes, headers: dict[str, str]) -> int:
        if self.traces_say:
            return self.traces_say
        if where != "agents/otel/v1/traces" or headers.get("project_id") != "us/p":
            return 404
        sent, self.trace_headers = spans_in(body), headers
        self.num_spans += len(sent)
        self.spans |= {span["id"]: span for span in sent}
        return 200

    def _stream(self, run_id: str, sent: dict[str, Any]) -> None:
        run = self.runs[run_id]
        history = sent.get("files", {}).get("wandb-history.jsonl")
        if history:
            run.rows[history["offset"] :] = [json.loads(line) for line in history["content"]]
        if sent.get("complete"):
            run.exit_code = sent["exitcode"]

    def _put(self, where: str, body: bytes) -> None:
        kind, owner, name = where.split("/", 2)
        if kind == "run":
            self.runs[owner].files[name] = body
        elif kind == "artifact":
            self._version(owner).files[name] = body

    def _version(self, id: str) -> Version:
        return next(v for v in self.versions if v.id == id)

    # -- GraphQL, by the names of the operations -------------------------------------------

    def _on_Viewer(self, **_: Any) -> dict[str, Any]:
        none = {"edges": []}
        return {"viewer": {"id": "u", "entity": "us", "flags": "{}", "teams": none, "name": "us"}}

    def _on_RunResumeStatus(self, *, name: str, **_: Any) -> dict[str, Any]:
        run = self.runs.get(name)
        if run is None:
            return {"model": None}
        last = json.dumps(run.rows[-1]) if run.rows else "{}"
        bucket = {
            "id": "x",
            "name": name,
            "summaryMetrics": last,
            "historyLineCount": len(run.rows),
            "eventsLineCount": 0,
            "logLineCount": 0,
            "historyTail": json.dumps([last]),
            "eventsTail": "[]",
            "config": json.dumps(run.config),
            "tags": [],
            "wandbConfig": '{"t": 1}',
        }
        return {"model": {"name": "p", "entity": {"name": "us"}, "bucket": bucket}}

    def _on_UpsertBucket(self, *, name: str, config: str | None, **_: Any) -> dict[str, Any]:
        is_new = name not in self.runs
        run = self.runs.setdefault(name, Run())
        run.config |= json.loads(config or "{}")
        bucket = {"id": "x", "name": name, "displayName": "n", "project": PROJECT}
        return {"upsertBucket": {"bucket": bucket, "inserted": is_new}}

    def _on_CreateRunFiles(self, *, run: str, files: list[str], **_: Any) -> dict[str, Any]:
        places = [{"name": f, "uploadUrl": f"{self.url}/put/run/{run}/{f}"} for f in files]
        return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": places}}

    def _on_ArtifactType(self, **_: Any) -> dict[str, Any]:
        return {"project": None}

    def _on_CreateArtifact(self, *, input: dict[str, Any], **_: Any) -> dict[str, Any]:
        """As the real one: the same content is the same version, and an alias is of one version."""
        name, aliases = input["artifactCollectionName"], {a["alias"] for a in input["aliases"]}
        mine = [v for v in self.versions if v.name == name]
        found = next((v for v in mine if v.digest == input["digest"]), None)
        if found is None:
            id = f"a{len(self.versions)}"
            found = Version(id, name, input["artifactTypeName"], set(), input["digest"])
            self.versions.append(found)
        for version in mine:
            version.aliases -= aliases
        found.aliases |= aliases
        sequence = {"id": name, "latestArtifact": None}
        artifact = {"id": found.id, "state": found.state, "artifactSequence": sequence}
        return {"createArtifact": {"artifact": artifact}}

    def _on_CreateArtifactManifest(self, **_: Any) -> dict[str, Any]:
        url = f"{self.url}/put/manifest/-/-"
        file = {"id": "f", "name": "m", "displayName": "m", "uploadUrl": url, "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": "m", "file": file}}}

    def _on_CreateArtifactFiles(self, *, input: dict[str, Any], **_: Any) -> dict[str, Any]:
        def place(spec: dict[str, Any]) -> dict[str, Any]:
            id, name = spec["artifactID"], spec["name"]
            node = {
                "id": "f",
                "name": name,
                "displayName": name,
                "uploadUrl": f"{self.url}/put/artifact/{id}/{name}",
                "uploadHeaders": [],
                "storagePath": name,
                "uploadMultipartUrls": None,
                "artifact": {"id": id},
            }
            return {"node": node}

        edges = [place(spec) for spec in input["artifactFiles"]]
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _on_CommitArtifact(self, *, artifactID: str, **_: Any) -> dict[str, Any]:
        version = self._version(artifactID)
        version.state = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": artifactID, "digest": version.digest}}}

    def _on_ArtifactByID(self, *, id: str, **_: Any) -> dict[str, Any]:
        version = self._version(id)
        sequence = {"__typename": "ArtifactSequence", "name": version.name, "project": PROJECT}
        artifact = {
            "__typename": "Artifact",
            "id": id,
            "artifactSequence": sequence,
            "versionIndex": 0,
            "artifactType": {"name": version.type},
            "description": None,
            "metadata": "{}",
            "ttlDurationSeconds": 0,
            "ttlIsInherited": True,
            "tags": [],
            "historyStep": 0,
            "state": version.state,
            "size": 1,
            "digest": version.digest,
            "commitHash": None,
            "fileCount": len(version.files),
            "createdAt": "2026-01-01T00:00:00",
            "updatedAt": None,
            "aliases": [],
        }
        return {"artifact": artifact}
