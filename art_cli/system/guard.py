"""Run a command so that none of its processes outlives the process that started it.

python -I -S guard.py [--limit BYTES] [--last COMMAND] [--input FD] [--hold FILE]
    -- WORD...
python -I -S guard.py [--limit BYTES] --grace SECONDS -- WORD...

The starter keeps the guard's stdin open. When the starter dies in any way, stdin closes, and the
guard kills all processes of the command. A starter that writes a byte to stdin releases the
command, which then continues after the starter's end. The guard also kills all processes when the
command itself ends: vLLM's engine processes do not notice that their server was killed, and would
keep the GPU's memory.

- --limit: kill the command when it has printed more than BYTES into the file that is stderr.
- --last: run COMMAND, split at spaces, at the very end.
- --input: use descriptor FD as the command's stdin. Without it, the command has no stdin.
- --hold: lock FILE as in lock.py while the guard lives, which shows others that the command runs.
- --grace: pass stdin on to the command. After it closes, the command has SECONDS to end.

SIGTERM and SIGINT are passed on to the command's process group. With --hold, SIGHUP kills it. The
guard ends like the command, with its exit code or by its signal.

On Linux the guard is the subreaper of all descendants, so it finds and kills even a process that
moved to its own session. Elsewhere (macOS) only the process group is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

HANDED_ON = {signal.SIGTERM, signal.SIGINT}
LOOK_EVERY = 100  # milliseconds between checks of the printed bytes
LAST_TIMEOUT = 30.0  # seconds for the last command
PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 3, 4, 36
NOT_STARTED = 127  # the exit code of a shell for a missing command
HOLD_TIMEOUT = 10.0  # seconds; a process that checks the lock holds it for an instant


def guarded(
    words: list[str],
    *,
    limit: int = 0,
    last: list[str] | None = None,
    stdin: int | None = None,
    grace: float = 0.0,
    hold: str = "",
) -> list[str]:
    """Return the command line that runs `words` under a guard, as described for this module.

    Start it with a pipe as its stdin, and keep the pipe open. With `grace`, the pipe's content goes
    to `words`.
    """
    options = {"--limit": str(limit or ""), "--last": " ".join(last or [])}
    options["--grace"] = str(grace or "")
    options["--input"] = "" if stdin is None else str(stdin)
    options["--hold"] = hold
    given = [word for option in options.items() if option[1] for word in option]
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *given, "--", *words]


def hide() -> None:
    """Hide this process from others of the same user, on Linux.

    They can no longer read its memory, files and environment under /proc, nor trace it. root still
    can, so the memory block of the initial environment, which /proc/PID/environ shows, is cleared;
    os.environ keeps copies.
    """
    if sys.platform != "linux" or not _prctl(PR_GET_DUMPABLE):
        return
    for name, value in os.environb.items():
        os.environb[name] = value
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = map(int, fields[47:49])
    ctypes.memset(start, 0, end - start)
    _prctl(PR_SET_DUMPABLE, 0)


def main() -> None:
    """Run the command in the arguments."""
    cut = sys.argv.index("--")
    options = dict(zip(sys.argv[1:cut:2], sys.argv[2:cut:2], strict=True))
    killed = {signal.SIGHUP} if "--hold" in options else set()  # others may run under nohup
    woken = _hear(*HANDED_ON, *killed, signal.SIGCHLD)
    if sys.platform == "linux":
        hide()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if "--hold" in options:
        _hold(options["--hold"])
    grace = float(options.get("--grace", 0))
    if "--input" in options:
        stdin = int(options["--input"])
    else:
        stdin = os.dup(0) if grace else os.open(os.devnull, os.O_RDONLY)
    command = _start(sys.argv[cut + 1 :], stdin)
    status = _watch(command, woken, int(options.get("--limit", 0)), grace)
    _signal(command, signal.SIGKILL)
    _kill_children()
    if "--last" in options:
        _run_last(options["--last"].split(" "))
    _end_as(status)


def _prctl(option: int, value: int = 0) -> int:
    return ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _hear(*numbers: int) -> int:
    """Return a descriptor that yields the numbers of these signals as bytes."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return woken


def _hold(file: str) -> None:
    """Lock a file until this process ends. The command does not inherit the descriptor."""
    import fcntl  # imported here because few commands need it

    deadline = time.monotonic() + HOLD_TIMEOUT
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() > deadline:
                os.write(2, f"cannot lock {file}: {error.strerror}\n".encode())
                os._exit(NOT_STARTED)
            os.close(descriptor)
            time.sleep(0.02)


def _start(words: list[str], stdin: int) -> int:
    """Start the command in a new process group. Return its process id."""
    guard, (started, start) = os.getpid(), os.pipe()
    if command := os.fork():
        os.close(start)
        os.close(stdin)
        os.read(started, 1)  # until exec has replaced our program
        os.close(started)
        return command
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:
            os.dup2(stdin, 0)
            os.close(stdin)
            os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"cannot start {words[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _watch(command: int, woken: int, limit: int, grace: float) -> int:
    """Wait for the command's end, or force it when due. Return its status, as from os.wait."""
    events = select.poll()
    events.register(0, 0 if grace else select.POLLIN)  # 0: only report a hang-up
    events.register(woken, select.POLLIN)
    ends = None  # deadline for the command's end
    while True:
        for descriptor, _ in events.poll(LOOK_EVERY if limit or ends else None):
            if descriptor == woken:
                heard = set(os.read(woken, 512))
                for number in heard & HANDED_ON:
                    _signal(command, number)
                if signal.SIGHUP in heard:
                    ends = time.monotonic()
            elif descriptor == 0:
                events.unregister(0)
                if grace or not os.read(0, 1):
                    ends = time.monotonic() + grace
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # orphans become our children
            if ended[0] == command:
                return ended[1]
        if (ends and time.monotonic() >= ends) or (limit and os.fstat(2).st_size > limit):
            _signal(command, signal.SIGKILL)


def _signal(command: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(command, number)


def _kill_children() -> None:
    """Kill the processes that the command has left behind, until there are none.

    Children of killed processes become ours. No other process can be hit: an id is reused only
    after its parent, the guard, has waited for it. Processes of other users are skipped.
    """
    spared: set[int] = set()
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        children = set(_children())
        for pid in children - spared:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                spared.add(pid)
        if children and children <= spared:
            return
        time.sleep(0.002)


def _children() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _run_last(words: list[str]) -> None:
    import subprocess  # slow to import, and seldom needed

    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        null = subprocess.DEVNULL
        subprocess.run(words, stdin=null, stdout=null, stderr=null, timeout=LAST_TIMEOUT)


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
