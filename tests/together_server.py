"""Together's API, version 2, on loopback: what `art deploy --to together` talks to in tests.

    with LoopbackTogether() as together:
        together.fault("POST", "/deployments$", 503, does=True)  # done, but the answer is lost
        ...
        together.file("ml_1", "adapter_model.safetensors")

It follows the types of the official client, 3.1, which parses what it says (tests/integration). It
keeps what is uploaded, and every request.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NOW = "2026-11-20T00:00:00Z"
PROJECT, SLUG = "proj_1", "acme"
HOME = f"/v2/projects/{PROJECT}"
BASE = "Qwen/Qwen3.5-9B"
CENTS = {"1xnvidia-h100-80gb": 336, "1xnvidia-l40s-48gb": 149}


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


@dataclass(slots=True)
class Fault:
    """What goes wrong the next `times` a request fits."""

    method: str
    path: re.Pattern[str]
    status: int  # 0: the connection is cut
    message: str
    does: bool  # what was asked for happens all the same
    headers: dict[str, str]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


@dataclass(slots=True)
class LoopbackTogether:
    """The service, with one project and one supported base."""

    polls_until_ready: int = 2
    ends: str = "READY"  # or FAILED: what a deployment comes to
    before_part: Callable[[], object] = lambda: None  # is called before it takes a part
    profiles: list[tuple[str, str, str]] = field(  # config, hardware, quantization
        default_factory=lambda: [
            ("cr_big", "1xnvidia-h100-80gb", "BF16"),
            ("cr_small", "1xnvidia-l40s-48gb", "BF16"),
        ]
    )
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    endpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    deployments: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    _uploads: dict[tuple[str, str, str], str] = field(default_factory=dict)  # to their ids
    _blobs: dict[str, bytes] = field(default_factory=dict)
    _files: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # model, path -> blobs
    _polls: dict[str, int] = field(default_factory=dict)
    _faults: list[Fault] = field(default_factory=list)
    _count: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """For TOGETHER_BASE_URL."""
        assert self._server
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> LoopbackTogether:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server
        self._server.shutdown()
        self._server.server_close()

    def fault(
        self,
        method: str,
        path: str,
        status: int,
        message: str = "a planted fault",
        *,
        does: bool = False,
        headers: dict[str, str] | None = None,
        times: int = 1,
    ) -> None:
        """Plant one; `path` is a regular expression."""
        fault = Fault(method, re.compile(path), status, message, does, headers or {}, times)
        self._faults.append(fault)

    def num_asked(self, method: str, path: str) -> int:
        """How often."""
        return sum(a.method == method and bool(re.search(path, a.path)) for a in self.asked)

    def heal(self) -> None:
        """Nothing that was planted happens any more."""
        self._faults.clear()

    def file(self, model: str, path: str) -> bytes:
        """What was uploaded."""
        return b"".join(self._blobs[blob] for blob in self._files[model, path])

    def paths(self, model: str) -> list[str]:
        """The files of a model."""
        return [path for owner, path in self._files if owner == model]

    @property
    def parts(self) -> list[str]:
        """What has arrived, as "FILE/NUMBER"."""
        return [part_name(path) for path in self._blobs]

    def give_up_uploads(self) -> None:
        """Those that are not complete: their parts are gone."""
        self._uploads.clear()
        self._blobs.clear()

    @property
    def running(self) -> list[str]:
        """The deployments that are billed."""
        return [i for i, d in self.deployments.items() if d["autoscaling"]["minReplicas"]]

    # ------------------------------------------------------------- the API

    def answer(self, asked: Asked, raw: bytes, has_key: bool) -> tuple[Any, dict[str, str]]:
        """-> JSON and headers. Raises Refused, ConnectionError."""
        with self._lock:
            self.asked.append(asked)
            fault = next((f for f in self._faults if self._fits(f, asked)), None)
            if fault and not fault.does:
                self._break(fault)
            result = self._answer(asked, raw, has_key)
            if fault:
                self._break(fault)
            return result

    def _fits(self, fault: Fault, asked: Asked) -> bool:
        fits = fault.method == asked.method and fault.path.search(asked.path)
        return bool(fits) and fault.times > 0

    def _break(self, fault: Fault) -> None:
        fault.times -= 1
        if fault.status == 0:
            raise ConnectionError
        raise Refused(fault.status, fault.message, fault.headers)

    def _answer(self, asked: Asked, raw: bytes, has_key: bool) -> tuple[Any, dict[str, str]]:
        path = asked.path
        if path.startswith("/parts/"):
            if path.split("/")[2] not in self._uploads.values():
                raise Refused(404, "The specified upload does not exist")
            self._blobs[path] = raw
            return None, {"ETag": f'"{hashlib.md5(raw).hexdigest()}"'}
        if not has_key:
            raise Refused(401, "Missing API key")
        for pattern, method, reply in self._routes():
            if (found := re.fullmatch(pattern, path)) and method == asked.method:
                return reply(asked, *found.groups()), {}
        raise Refused(404, f"{asked.method} {path} is not known")

    def _routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        endpoint, deployment = f"{HOME}/endpoints/(ep_\\w+)", "/deployments/(dep_\\w+)"
        return [
            ("/v3/whoami", "GET", self._whoami),
            ("/v2/supported-models", "GET", self._supported),
            ("/v2/public/inference-instance-types", "GET", self._hardware),
            (r"/v2/projects/proj_pub/configs/(\w+)", "GET", self._config),
            (f"{HOME}/models", "POST", self._make_model),
            (f"{HOME}/models", "GET", lambda a: _page(self.models.values())),
            (f"{HOME}/models/(ml_\\w+)", "GET", lambda a, i: _found(self.models, i)),
            (f"{HOME}/models/(ml_\\w+)", "DELETE", self._drop_model),
            (f"{HOME}/models/upload/create", "POST", self._begin_upload),
            (f"{HOME}/models/upload/complete", "POST", self._end_upload),
            (f"{HOME}/endpoints", "POST", self._make_endpoint),
            (f"{HOME}/endpoints", "GET", lambda a: _page(map(self._shown, self.endpoints))),
            (endpoint, "GET", lambda a, i: self._shown(i)),
            (endpoint, "PATCH", self._route_traffic),
            (endpoint, "DELETE", self._drop_endpoint),
            (f"{endpoint}/deployments", "POST", self._make_deployment),
            (f"{endpoint}/deployments", "GET", self._list_deployments),
            (endpoint + deployment, "GET", self._look_at),
            (endpoint + deployment, "PATCH", self._scale),
            (endpoint + deployment, "DELETE", self._drop_deployment),
            ("/v1/chat/completions", "POST", self._chat),
        ]

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count}"

    def _whoami(self, asked: Asked) -> Any:
        organization = {"id": "org_1", "name": "Acme", "slug": "acme"}
        return {
            "type": "project_api_key",
            "api_key": {"id": "key_1"},
            "organization": organization,
            "project": {"id": PROJECT, "name": "Acme", "slug": SLUG},
        }

    def _supported(self, asked: Asked) -> Any:
        profiles = [
            {
                "certifiedConfigRevisionId": config,
                "certifiedModelRevisionId": "rv_1",
                "config": f"projects/proj_pub/configs/{config}",
                "gpuCount": 1,
                "gpuType": hardware.split("-")[1].upper(),
                "model": "projects/proj_pub/models/ml_base1/revisions/rv_1",
                "modelName": BASE,
                "parallelism": "TP1",
                "performanceBenchmarks": {},
                "profileId": config,
                "quantization": quantization,
                "adapterMode": "ADAPTER_MODE_DYNAMIC",
            }
            for config, hardware, quantization in self.profiles
        ]
        base = {
            "id": "arch_1",
            "baseModel": "projects/proj_pub/models/ml_base1",
            "baseModelId": "ml_base1",
            "capabilities": ["CAPABILITY_CHAT"],
            "createdAt": NOW,
            "updatedAt": NOW,
            "displayName": "Qwen3.5 9B",
            "displayType": "chat",
            "inputModalities": ["MODALITY_TEXT"],
            "outputModalities": ["MODALITY_TEXT"],
            "name": BASE,
            "products": ["PRODUCT_DEDICATED"],
            "publisher": "Qwen",
            "status": "SUPPORTED_MODEL_STATUS_SUPPORTED",
            "deploymentProfiles": profiles,
        }
        return _page([base] if asked.query.get("search", "").lower() in BASE.lower() else [])

    def _hardware(self, asked: Asked) -> Any:
        return _page(
            {
                "id": f"it_{name}",
                "name": name,
                "description": name,
                "gpuCount": 1,
                "gpuMemoryGib": 80,
                "gpuType": name.split("-")[1].upper(),
                "priceCentsPerHour": cents,
                "regions": [{"name": "us-east"}],
            }
            for name, cents in CENTS.items()
        )

    def _config(self, asked: Asked, config: str) -> Any:
        hardware = next(h for c, h, _ in self.profiles if c == config)
        count, _, kind = hardware.partition("x")
        return {
            "id": config,
            "certifications": [],
            "projectId": "proj_pub",
            "referenceModel": "projects/proj_pub/models/ml_base1",
            "referenceModelId": "ml_base1",
            "selectors": [
                {"key": "accelerator_type", "value": kind},
                {"key": "accelerator_count", "value": count},
            ],
        }

    def _make_model(self, asked: Asked) -> Any:
        name = _free(f"{SLUG}/{asked.body['name']}", self.models)
        i = self._new("ml")
        kind = "ADAPTER" if asked.body["type"] == "adapter" else "DEFAULT"
        self.models[i] = {
            "id": i,
            "name": name,
            "organizationId": "org_1",
            "projectId": PROJECT,
            "visibility": "VISIBILITY_PRIVATE",
            "weights": {"type": f"WEIGHTS_TYPE_{kind}"},
            "baseModelId": asked.body["baseModelId"],
            "description": asked.body.get("description"),
        }
        return self.models[i]

    def _drop_model(self, asked: Asked, i: str) -> Any:
        _found(self.models, i)
        if any(d["modelId"] == i for d in self.deployments.values()):
            raise Refused(409, "the model is deployed")
        del self.models[i]
        return {"id": i, "deleted": True}

    def _begin_upload(self, asked: Asked) -> Any:
        model, files = asked.body["objectId"], []
        _found(self.models, model)
        for f in asked.body["files"]:
            if (model, f["path"]) in self._files:
                files.append({"path": f["path"], "skipUpload": True})
                continue
            key = (model, f["path"], f["hash"])
            upload = self._uploads.setdefault(key, self._new("up"))
            at = f"{self.url}/parts/{upload}/{f['path']}"
            parts = [
                {"partNumber": n, "url": f"{at}/{n}", "headers": {}}
                for n in range(1, f["numParts"] + 1)
            ]
            files.append({"path": f["path"], "uploadId": upload, "parts": parts})
        return {"files": files}

    def _end_upload(self, asked: Asked) -> Any:
        for f in asked.body["files"]:
            if f.get("skipUpload"):
                continue
            details = f["uploadDetails"]
            at = f"/parts/{details['uploadId']}/{f['path']}"
            blobs = [f"{at}/{p['partNumber']}" for p in details["parts"]]
            digests = [hashlib.md5(self._blobs[b]) for b in blobs]
            if [d.hexdigest() for d in digests] != [p["hash"] for p in details["parts"]]:
                raise Refused(400, f"{f['path']}: the parts are not what was uploaded")
            whole = hashlib.md5(b"".join(d.digest() for d in digests)).hexdigest()
            if f["hash"] != (
                digests[0].hexdigest() if len(blobs) == 1 else f"{whole}-{len(blobs)}"
            ):
                raise Refused(400, f"{f['path']}: the hash is another")
            self._files[asked.body["objectId"], f["path"]] = blobs
        return {"revisionId": self._new("rv")}

    def _make_endpoint(self, asked: Asked) -> Any:
        name = _free(f"{SLUG}/{asked.body['name']}", self.endpoints)
        i = self._new("ep")
        self.endpoints[i] = {
            "id": i,
            "createdAt": NOW,
            "updatedAt": NOW,
            "endpointType": "ENDPOINT_TYPE_DEDICATED",
            "etag": "e1",
            "name": name,
            "projectId": PROJECT,
            "trafficSplit": [],
            "visibility": "VISIBILITY_PRIVATE",
        }
        return self._shown(i)

    def _shown(self, endpoint: str) -> Any:
        found = _found(self.endpoints, endpoint)
        inside = [d for d in self.deployments.values() if d["endpointId"] == endpoint]
        return found | {"deployments": [_summary(d) for d in inside]}

    def _route_traffic(self, asked: Asked, i: str) -> Any:
        endpoint = _found(self.endpoints, i)
        if asked.body.get("etag", endpoint["etag"]) != endpoint["etag"]:
            raise Refused(409, "the etag is not the present one")
        endpoint["trafficSplit"] = asked.body["trafficSplit"]
        endpoint["etag"] = f"e{int(endpoint['etag'][1:]) + 1}"
        return self._shown(i)

    def _drop_endpoint(self, asked: Asked, i: str) -> Any:
        if self._shown(i)["deployments"]:
            raise Refused(409, "the endpoint has deployments")
        del self.endpoints[i]
        return {"id": i, "deleted": True}

    def _make_deployment(self, asked: Asked, endpoint: str) -> Any:
        full = f"{_found(self.endpoints, endpoint)['name']}/{asked.body['name']}"
        name = _free(full, self.deployments)
        i, model = self._new("dep"), asked.body["model"]
        self.deployments[i] = {
            "id": i,
            "autoscaling": asked.body["autoscaling"],
            "config": asked.body["config"],
            "configId": asked.body["config"].split("/")[-1],
            "createdAt": NOW,
            "updatedAt": NOW,
            "endpointId": endpoint,
            "etag": "d1",
            "hardware": "1xH100",
            "model": model,
            "modelId": model.split("/models/")[1].split("/")[0],
            "modelRevisionId": model.split("/")[-1],
            "name": name,
            "projectId": PROJECT,
            "trafficMode": "TRAFFIC_MODE_LIVE",
            "status": _status("PROVISIONING"),
        }
        return self.deployments[i]

    def _list_deployments(self, asked: Asked, endpoint: str) -> Any:
        return _page(d for d in self.deployments.values() if d["endpointId"] == endpoint)

    def _look_at(self, asked: Asked, endpoint: str, i: str) -> Any:
        found = _found(self.deployments, i)
        self._polls[i] = self._polls.get(i, 0) + 1
        if found["status"]["state"].endswith("STOPPING"):
            found["status"] = _status("STOPPED")
        elif self._polls[i] >= self.polls_until_ready and found["autoscaling"]["minReplicas"]:
            found["status"] = _status(self.ends)
        return found

    def _scale(self, asked: Asked, endpoint: str, i: str) -> Any:
        found = _found(self.deployments, i)
        found["autoscaling"] = asked.body["autoscaling"]
        found["status"] = _status("STOPPED")
        return found

    def _drop_deployment(self, asked: Asked, endpoint: str, i: str) -> Any:
        found = _found(self.deployments, i)
        if any(t["deploymentId"] == i for t in self.endpoints[endpoint]["trafficSplit"]):
            raise Refused(409, "the deployment has traffic")
        if found["autoscaling"]["minReplicas"]:
            raise Refused(409, "the deployment is running; scale it to 0 first")
        del self.deployments[i]
        return {"id": i, "deleted": True}

    def _chat(self, asked: Asked) -> Any:
        named = [e for e in self.endpoints.values() if e["name"] == asked.body["model"]]
        if not named:
            raise Refused(404, f"Unable to access model {asked.body['model']}")
        served = [t["deploymentId"] for t in named[0]["trafficSplit"]]
        ready = [i for i in served if self.deployments[i]["status"]["state"].endswith("READY")]
        if not ready:
            raise Refused(503, "no deployment takes the traffic of this endpoint")
        message = {"role": "assistant", "content": "4"}
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "prompt": [],
            "model": asked.body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
        }


def _summary(deployment: dict[str, Any]) -> dict[str, Any]:
    same = ("id", "name", "autoscaling", "createdAt", "model", "modelId", "trafficMode")
    summary = {key: deployment[key] for key in same}
    state = deployment["status"]["state"]
    return summary | {"state": state, "estimatedEffectiveTrafficShare": 1.0}


def _status(state: str) -> dict[str, Any]:
    return {"message": f"it is {state.lower()}", "state": f"DEPLOYMENT_STATE_{state}"}


def part_name(address: str) -> str:
    """FILE/NUMBER of the path that a part is sent to."""
    return address.split("/", 3)[3]


def _page(things: Any) -> dict[str, Any]:
    return {"object": "list", "data": list(things), "next_cursor": None}


def _found(things: dict[str, Any], i: str) -> Any:
    if i not in things:
        raise Refused(404, f"{i} is not known")
    return things[i]


def _free(name: str, things: dict[str, Any]) -> str:
    if any(t["name"] == name for t in things.values()):
        raise Refused(409, f"the name {name} is taken")
    return name


def _handler(service: LoopbackTogether) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _reply(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            is_json = "json" in (self.headers.get("Content-Type") or "") and raw
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            body = json.loads(raw) if is_json else None
            asked = Asked(method=self.command, path=url.path, query=query, body=body)
            status, headers = 200, {}
            try:
                if self.command == "PUT":
                    service.before_part()
                has_key = bool(self.headers.get("Authorization"))
                result, headers = service.answer(asked, raw, has_key)
            except Refused as e:
                status, headers = e.status, e.headers
                result = {"error": {"message": str(e), "type": "x", "code": "x", "param": None}}
            except ConnectionError:
                self.close_connection = True
                return
            content = b"" if result is None else json.dumps(result).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _reply

    return Handler
