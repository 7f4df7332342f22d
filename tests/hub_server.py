"""A Hugging Face Hub on loopback: as much of it as an upload by `huggingface_hub` needs."""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "1" * 40


@dataclass(slots=True)
class LoopbackHub:
    """Keeps repositories: their files by name."""

    token: str = "hf_good"
    may_write: bool = True
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    _lfs: dict[str, bytes] = field(default_factory=dict)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """For HF_ENDPOINT."""
        assert self._server
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> LoopbackHub:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, raw: bytes, token: str) -> tuple[int, Any]:
        """-> status, JSON."""
        if found := re.fullmatch(r"/lfs/(\w+)", path):
            self._lfs[found[1]] = raw
            return 200, None
        if token != f"Bearer {self.token}":
            return 401, {"error": "Invalid credentials in Authorization header"}
        if path == "/api/whoami-v2":
            return 200, {"type": "user", "name": "somebody", "orgs": [], "auth": {}}
        if method != "GET" and not self.may_write:
            return 403, {"error": "you need write access"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            asked = json.loads(raw)
            return self._create(f"{asked.get('organization') or 'somebody'}/{asked['name']}", asked)
        if path == "/api/repos/delete":
            asked = json.loads(raw)
            del self.repos[f"{asked.get('organization') or 'somebody'}/{asked['name']}"]
            return 200, None
        if found := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            return 200, self._lfs_batch(json.loads(raw))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.*)?", path):
            return self._repo(found[1], found[2] or "", raw)
        return 404, {"error": f"{method} {path}"}

    def _create(self, repo: str, asked: dict[str, Any]) -> tuple[int, Any]:
        if repo in self.repos:
            return 409, {"error": "You already created this model repo", "url": repo}
        self.repos[repo] = {}
        self.private[repo] = asked.get("visibility") == "private"
        return 200, {"url": f"{self.url}/{repo}"}

    def _lfs_batch(self, asked: dict[str, Any]) -> dict[str, Any]:
        objects = [
            {**o, "actions": {"upload": {"href": f"{self.url}/lfs/{o['oid']}"}}}
            for o in asked["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def _repo(self, repo: str, rest: str, raw: bytes) -> tuple[int, Any]:
        if repo not in self.repos:
            return 404, {"error": "Repository not found"}
        if rest.startswith("/preupload/"):
            files = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for f in json.loads(raw)["files"]
            ]
            return 200, {"files": files}
        if rest.startswith("/commit/"):
            for line in map(json.loads, raw.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.repos[repo][value["path"]] = base64.b64decode(value["content"])
                if line["key"] == "lfsFile":
                    self.repos[repo][value["path"]] = self._lfs[value["oid"]]
            done = {"commitUrl": f"{self.url}/{repo}/commit/{COMMIT}", "commitOid": COMMIT}
            return 200, done | {"pullRequestUrl": None}
        siblings = [{"rfilename": name} for name in self.repos[repo]]
        about = {"_id": "1", "id": repo, "sha": COMMIT, "private": self.private[repo], "tags": []}
        return 200, about | {"downloads": 0, "likes": 0, "siblings": siblings}


def _handler(hub: LoopbackHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _reply(self) -> None:
            raw = self._body()
            path = self.path.partition("?")[0]
            token = self.headers.get("Authorization") or ""
            status, result = hub.answer(self.command, path, raw, token)
            content = b"" if result is None else json.dumps(result).encode()
            self.send_response(status)
            if status >= 400:
                self.send_header("X-Error-Message", result["error"])
                if status == 404:
                    self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _reply

    return Handler
