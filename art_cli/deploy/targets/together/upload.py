"""Files to Together's storage, part by part; what has arrived is not sent again.

The parts are those of S3's multipart upload: 20 MiB each, PUT to addresses that the service signs;
a file's hash is the MD5 of the MD5s of its parts. The addresses expire, which all the weights of a
large model may outlast: then the service is asked for new ones.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import httpx

from art_cli.deploy.targets.together.api import TogetherAPI
from art_cli.errors import ArtError
from art_cli.system.progress import Report

PART = 20 * 2**20  # bytes
PIECE = 2**18  # bytes between looks at whether to stop
AT_ONCE = 4
ATTEMPTS = 5
PAUSE = 0.5  # seconds before the second attempt, doubled before each further one
STALLED = 60.0  # seconds in which nothing of a part gets on
EXPIRED = 403

Sent = dict[str, Any]  # "uploadId", and "parts": {number: etag}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One to be sent."""

    path: str  # the file's name there
    number: int
    file: Path
    at: int
    size: int
    url: str
    headers: dict[str, str]


class _Expired(ArtError):
    """The storage does not take a part at its address any more."""


def upload(
    api: TogetherAPI,
    project: str,
    model: str,
    files: dict[str, Path],
    sent: dict[str, Sent],
    keep: Callable[[], None],
    report: Report,
) -> str:
    """Send files to a model, and return the revision.

    `sent` is what has arrived, by path; it is kept after each part. Raises ArtError where a part
    does not get through.
    """
    report("reading what is to be uploaded")
    described = {
        path: {"path": path, "hash": _hash(file), "numParts": len(_ranges(file))}
        for path, file in files.items()
    }
    root = f"/v2/projects/{project}/models/upload"
    total, before = sum(d["numParts"] for d in described.values()), -1
    while True:
        body = {"objectId": model, "files": list(described.values())}
        remote = api.insist("POST", f"{root}/create", body)["files"]
        missing = _missing(files, remote, sent)
        done = total - len(missing)
        try:
            for part, etag in _send_all(missing):
                sent[part.path]["parts"][str(part.number)] = etag
                keep()
                done += 1
                report("uploading", done, total)
            break
        except _Expired:
            if done <= before:  # new addresses are of no use
                raise
            before = done
    complete = [_complete(described[r["path"]], r, sent) for r in remote]
    body = {"objectId": model, "files": complete}
    return api.insist("POST", f"{root}/complete", body)["revisionId"]


def _missing(
    files: dict[str, Path], remote: list[dict[str, Any]], sent: dict[str, Sent]
) -> list[_Part]:
    """Return what has not arrived.

    What was sent to an upload that the service has given up is lost.
    """
    missing = []
    for r in remote:
        if r.get("skipUpload"):
            continue
        path, file = r["path"], files[r["path"]]
        if sent.get(path, {}).get("uploadId") != r["uploadId"]:
            sent[path] = {"uploadId": r["uploadId"], "parts": {}}
        ranges = _ranges(file)
        if len(ranges) != len(r["parts"]):
            raise ArtError(f"{path} has {len(ranges)} parts, but Together wants {len(r['parts'])}")
        for part in r["parts"]:
            number, headers = int(part["partNumber"]), part.get("headers") or {}
            if str(number) not in sent[path]["parts"]:
                at, size = ranges[number - 1]
                where = {"url": part["url"], "headers": headers, "at": at, "size": size}
                missing.append(_Part(path=path, number=number, file=file, **where))
    return missing


def _complete(described: dict[str, Any], remote: dict[str, Any], sent: dict[str, Sent]) -> Any:
    same = {"path": described["path"], "hash": described["hash"]}
    if remote.get("skipUpload"):
        return same | {"skipUpload": True}
    parts = sorted((int(n), etag) for n, etag in sent[described["path"]]["parts"].items())
    numbered = [{"partNumber": n, "hash": etag} for n, etag in parts]
    return same | {"uploadDetails": {"uploadId": remote["uploadId"], "parts": numbered}}


def _send_all(parts: list[_Part]) -> Iterator[tuple[_Part, str]]:
    """Yield each part as it arrives, with what the storage calls it.

    Where one does not get through, those that are under way arrive first, and then its ArtError is
    raised. The threads are daemons: Ctrl-C does not wait for a storage that does not answer.
    """
    stop = threading.Event()
    waiting: SimpleQueue[_Part] = SimpleQueue()
    ended: SimpleQueue[tuple[_Part, str | Exception] | None] = SimpleQueue()  # None: a thread
    for part in parts:
        waiting.put(part)

    def send() -> None:
        while (part := _next(waiting)) is not None:
            try:
                ended.put((part, _send(client, part, stop)))
            except Exception as e:  # raised below
                ended.put((part, e))
        ended.put(None)

    problem: Exception | None = None
    with httpx.Client(timeout=STALLED) as client:
        at_work = min(AT_ONCE, len(parts))
        for _ in range(at_work):
            threading.Thread(target=send, daemon=True).start()
        try:
            while at_work:
                outcome = ended.get()
                if outcome is None:
                    at_work -= 1
                elif isinstance(outcome[1], Exception):
                    problem = problem or outcome[1]
                    _drop(waiting)
                else:
                    yield outcome[0], outcome[1]
        finally:
            stop.set()
            _drop(waiting)
    if problem:
        raise problem


def _next(waiting: SimpleQueue[_Part]) -> _Part | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None


def _drop(waiting: SimpleQueue[_Part]) -> None:
    while _next(waiting):
        pass


def _send(client: httpx.Client, part: _Part, stop: threading.Event) -> str:
    headers = part.headers | {"Content-Length": str(part.size)}
    problem = ""
    kind: type[ArtError] = ArtError
    for attempt in range(ATTEMPTS):
        if attempt and stop.wait(PAUSE * 2 ** (attempt - 1)):
            break
        try:
            answer = client.put(part.url, headers=headers, content=_pieces(part, stop))
        except httpx.HTTPError as e:
            problem = str(e) or type(e).__name__
            continue
        etag = answer.headers.get("ETag", "").strip('"')
        if answer.status_code == 200 and etag:
            return etag
        problem = f"HTTP {answer.status_code} {answer.text[:200]}".strip()
        if 400 <= answer.status_code < 500 and answer.status_code != 429:
            kind = _Expired if answer.status_code == EXPIRED else ArtError
            break
    raise kind(
        f"part {part.number} of {part.path} could not be uploaded: {problem}. The parts that have "
        "arrived are kept there; nothing is billed"
    )


def _pieces(part: _Part, stop: threading.Event) -> Iterator[bytes]:
    left = part.size
    with part.file.open("rb") as opened:
        opened.seek(part.at)
        while not stop.is_set() and (piece := opened.read(min(PIECE, left))):
            left -= len(piece)
            yield piece


def _ranges(file: Path) -> list[tuple[int, int]]:
    """Return where each part begins, and how long it is."""
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
