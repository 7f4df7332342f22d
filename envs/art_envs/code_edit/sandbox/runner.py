"""A process that runs one program after another, and outlives none of them nor its starter.

python -I -S -B runner.py FOLDER LANGUAGE=PROGRAM...

Reads a job a line on stdin ({"language", "files", "calls", "cpu_seconds", "wall_seconds"}), and
answers with a line on stdout ({"results", "printed", "ended"}). The first line says whether this
machine has walls. Each job has a process of its own, and a new folder below FOLDER, which is
removed at the end. Python is not started again: a copy of this process, which knows no answer,
plays it. Stdin closes when the starter dies, in whatever way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import languages
import walls

RULESET = 4  # the descriptor of it in a program's process, until it holds
MOST_PRINTED = 64 << 10  # bytes on stdout and stderr, or of results
PYTHON_MEMORY, NODE_MEMORY = 192 * walls.MIB, 512 * walls.MIB
HERE = os.path.realpath(os.path.dirname(os.__file__))
LIBRARIES = ("/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/lib32")
NOT_READ = ("site-packages", "dist-packages")  # what is installed there may know the answers


def main() -> None:
    """Serve until stdin closes."""
    home, programs = sys.argv[1], dict(word.split("=", 1) for word in sys.argv[2:])
    try:
        version = walls.landlock_version()
        ruleset = walls.make_ruleset(
            [*_library(), *_standard_library(), home], programs.values(), [HERE], version
        )
        _try(home, ruleset)
        _say({"ready": version})
        serve(home, ruleset, programs)
    except walls.NoWallsError as e:
        _say({"no_walls": str(e)})
    finally:
        shutil.rmtree(home, ignore_errors=True)


def serve(home: str, ruleset: int, programs: dict[str, str]) -> None:
    """Answer jobs."""
    for line in sys.stdin.buffer:
        job = json.loads(line)
        folder = os.path.join(home, "repository")
        _write(folder, job["files"])
        _say(_run(folder, ruleset, job, programs.get(job["language"])))
        shutil.rmtree(folder)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _library() -> list[str]:
    """Return where shared objects are, and nothing that was installed for Python."""
    found = ["/usr/share/nodejs"]  # a part of Debian's node
    for folder in {os.path.realpath(path) for path in LIBRARIES}:
        with contextlib.suppress(OSError):
            found += [entry.path for entry in os.scandir(folder) if "python" not in entry.name]
    own = os.path.join(sys.base_prefix, "lib")
    with contextlib.suppress(OSError):
        found += [entry.path for entry in os.scandir(own) if ".so" in entry.name]
    return found


def _standard_library() -> list[str]:
    return [entry.path for entry in os.scandir(HERE) if entry.name not in NOT_READ]


def _write(folder: str, files: dict[str, str]) -> None:
    os.mkdir(folder)
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)


def _run(folder: str, ruleset: int, job: dict[str, Any], program: str | None) -> dict[str, Any]:
    given = _input(languages.as_input(job["language"], job["calls"]), os.path.dirname(folder))
    results, write_results = os.pipe()
    printed, print_to = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            ends = [given, print_to, print_to, write_results, ruleset]
            high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 64) for descriptor in ends]
            for number, descriptor in enumerate(high):
                os.dup2(descriptor, number)  # languages.RESULTS is 3, RULESET 4
            os.closerange(RULESET + 1, 256)
            _become(folder, job, program)
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
        finally:
            os._exit(0)
    for descriptor in (given, write_results, print_to):
        os.close(descriptor)
    written, why = _watch(pid, {results: bytearray(), printed: bytearray()}, job["wall_seconds"])
    status = os.waitpid(pid, 0)[1]
    return {
        "results": languages.as_json(job["language"], bytes(written[results])).replace(folder, "."),
        "printed": bytes(written[printed]).decode(errors="replace").replace(folder, "."),
        "ended": why or _ending(status),
    }


def _input(text: bytes, home: str) -> int:
    """Return a descriptor to read a text from. It is a file: a pipe may be one nobody reads."""
    path = os.path.join(home, "input")
    with open(path, "wb") as file:
        file.write(text)
    descriptor = os.open(path, os.O_RDONLY)
    os.remove(path)
    return descriptor


def _become(folder: str, job: dict[str, Any], program: str | None) -> None:
    """Be the program, in the child's process."""
    language = job["language"]
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(LANG="C.UTF-8", HOME=folder, OPENSSL_CONF=os.devnull, PATH="")
    memory = NODE_MEMORY if language == "javascript" else PYTHON_MEMORY
    space = None if language == "javascript" else 2 * memory
    walls.close_in(RULESET, cpu_seconds=job["cpu_seconds"], memory=memory, address_space=space)
    os.close(RULESET)
    if language == "python":
        languages.play_python(folder, job["calls"])
        sys.stdout.flush()
    else:
        assert program
        os.execv(program, languages.command(language, program, folder))


def _watch(
    pid: int, read: dict[int, bytearray], seconds: float
) -> tuple[dict[int, bytearray], str]:
    """Return what came out of each descriptor, and why the program was ended, if it was.

    A program may close what it writes to and go on: it has ended only when its process has.
    """
    why, until = "", time.monotonic() + seconds
    ended = os.pidfd_open(pid)
    waited_for = {ended, *read}
    events = select.poll()
    for descriptor in waited_for:
        events.register(descriptor, select.POLLIN)
    events.register(0, 0)  # only that it is closed
    while waited_for and not why:
        ready = events.poll(max(0, until - time.monotonic()) * 1000)
        for descriptor, _ in ready:
            if descriptor == 0:
                why = "starter"
            elif descriptor != ended and (piece := os.read(descriptor, 1 << 16)):
                read[descriptor] += piece
                why = "output" if len(read[descriptor]) > MOST_PRINTED else why
            else:
                events.unregister(descriptor)
                waited_for.remove(descriptor)
        if waited_for and time.monotonic() >= until:
            why = why or "time"
    if ended in waited_for:
        os.kill(pid, signal.SIGKILL)
    for descriptor in (ended, *read):
        os.close(descriptor)
    return read, why


def _ending(status: int) -> str:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGKILL:
        return "time"  # the kernel, for its limit of CPU time
    return f"signal {number}" if number else ""


def _try(home: str, ruleset: int) -> None:
    """Raise NoWallsError unless a program finds itself behind walls."""
    folder = os.path.join(home, "repository")
    code = "def tried():\n try:\n  open('/etc/passwd')\n except PermissionError:\n  return 'held'"
    _write(folder, {"m.py": code})
    job = {"language": "python", "calls": [{"module": "m", "name": "tried", "args": []}]}
    came = _run(folder, ruleset, {**job, "cpu_seconds": 2, "wall_seconds": 10}, None)
    shutil.rmtree(folder)
    if '"held"' not in came["results"]:
        raise walls.NoWallsError((came["printed"] or came["ended"] or came["results"]).strip())


if __name__ == "__main__":
    main()
