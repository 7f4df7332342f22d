"""Files to Together's storage, part by part; what has arrived is not sent again.

The parts are those of S3's multipart upload: 20 MiB each, PUT to addresses that the service signs;
a file's hash is the MD5 of the MD5s of its parts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from art_cli.deploy.together_api import TogetherAPI
from art_cli.errors import ArtError
from art_cli.report import Report

PART = 20 * 2**20  # bytes
AT_ONCE = 4
ATTEMPTS = 5
PAUSE = 0.5  # seconds before the second attempt, doubled before each further one
PART_TIMEOUT = 1800.0  # seconds

Sent = dict[str, Any]  # "uploadId", and "parts": {number: etag}


def upload(
    api: TogetherAPI,
    project: str,
    model: str,
    files: dict[str, Path],
    sent: dict[str, Sent],
    keep: Callable[[], None],
    report: Report,
) -> str:
    """Send files to a model -> the revision. `sent` is what has arrived, by path; it is kept after
    each part. Raises ArtError where a part does not get through."""
    described = [
        {"path": path, "hash": _hash(file), "numParts": len(_parts(file))}
        for path, file in files.items()
    ]
    root = f"/v2/projects/{project}/models/upload"
    made = api.insist("POST", f"{root}/create", {"objectId": model, "files": described})
    hashes = {d["path"]: d["hash"] for d in described}
    total, done = sum(len(_parts(f)) for f in files.values()), 0
    complete = []
    for remote in made["files"]:
        path = remote["path"]
        if remote.get("skipUpload"):
            complete.append({"path": path, "hash": hashes[path], "skipUpload": True})
            done += len(_parts(files[path]))
            continue
        if sent.get(path, {}).get("uploadId") != remote["uploadId"]:
            sent[path] = {"uploadId": remote["uploadId"], "parts": {}}
        for number, etag in _send_parts(files[path], remote["parts"], sent[path]["parts"]):
            sent[path]["parts"][str(number)] = etag
            keep()
            done += 1
            report("uploading", done, total)
        parts = sorted((int(n), etag) for n, etag in sent[path]["parts"].items())
        details = {
            "uploadId": remote["uploadId"],
            "parts": [{"partNumber": n, "hash": etag} for n, etag in parts],
        }
        complete.append({"path": path, "hash": hashes[path], "uploadDetails": details})
    body = {"objectId": model, "files": complete}
    return api.insist("POST", f"{root}/complete", body)["revisionId"]


def _send_parts(
    file: Path, remote: list[dict[str, Any]], known: dict[str, str]
) -> Iterator[tuple[int, str]]:
    """The parts that were missing, as they arrive, with what the storage calls each."""
    local = _parts(file)
    if len(local) != len(remote):
        raise ArtError(f"{file.name} has {len(local)} parts, but Together wants {len(remote)}")
    missing = [p for p in remote if str(p["partNumber"]) not in known]
    with httpx.Client(timeout=PART_TIMEOUT) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [
            pool.submit(_send, client, file, local[int(p["partNumber"]) - 1], p) for p in missing
        ]
        try:
            for part, future in zip(missing, futures, strict=True):
                yield int(part["partNumber"]), future.result()
        finally:
            for future in futures:
                future.cancel()


def _send(client: httpx.Client, file: Path, where: tuple[int, int], part: dict[str, Any]) -> str:
    with file.open("rb") as opened:
        opened.seek(where[0])
        content = opened.read(where[1])
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            answer = client.put(part["url"], headers=part.get("headers") or {}, content=content)
        except httpx.HTTPError as e:
            problem = str(e) or type(e).__name__
            continue
        etag = answer.headers.get("ETag", "").strip('"')
        if answer.status_code == 200 and etag:
            return etag
        problem = f"HTTP {answer.status_code} {answer.text[:200]}".strip()
        if 400 <= answer.status_code < 500 and answer.status_code != 429:
            break
    raise ArtError(
        f"part {part['partNumber']} of {file.name} could not be uploaded: {problem}. The parts "
        "before it are kept there; nothing is billed"
    )


def _parts(file: Path) -> list[tuple[int, int]]:
    """Where each begins, and how long it is."""
    size = file.stat().st_size
    return [(at, min(PART, size - at)) for at in range(0, size, PART)]


def _hash(file: Path) -> str:
    digests = []
    with file.open("rb") as opened:
        while part := opened.read(PART):
            digests.append(hashlib.md5(part))
    if len(digests) == 1:
        return digests[0].hexdigest()
    return f"{hashlib.md5(b''.join(d.digest() for d in digests)).hexdigest()}-{len(digests)}"
