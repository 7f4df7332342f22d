"""Runs a command and sees that nothing of it outlives its starter.

python -I -S guard.py [--limit BYTES] [--last COMMAND] [--input FD] [--hold FILE]
    -- WORD...
python -I -S guard.py [--limit BYTES] --grace SECONDS -- WORD...

Stdin is held open by the starter: it closes when the starter dies, in whatever way, and then all
that the command has started is killed. A starter that writes a byte to it lets go of the command,
which then goes on when the starter has ended. All of it is also killed when the command itself
ends: vLLM's engine processes do not notice that their server was killed, and would keep the GPU's
memory. With a limit, the command is killed when it has printed more than so
many bytes into the file that is stderr. COMMAND, whose words are parted by spaces, is run at the
very end. The descriptor FD is the command's stdin; without, it has none. FILE is locked, as in
lock.py, for as long as the guard lives: whoever finds it locked knows that the command goes on.
With --grace, stdin is the command's, which is written to: once it closes, the command has so many
seconds to end by itself.
SIGTERM and SIGINT are handed on to the command's process group; with --hold, SIGHUP kills it. The
guard ends as the command does: with its exit code, or by the signal that ended it.

On Linux the guard is the subreaper of all that descends from it, so that a process which moved to a
session of its own is found and killed too. Elsewhere (macOS) only the process group is killed.
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
LOOK_EVERY = 100  # milliseconds between two looks at how much was printed
LAST_TIMEOUT = 30.0  # seconds for the last command
PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 3, 4, 36
NOT_STARTED = 127  # the exit code that a shell gives
HOLD_TIMEOUT = 10.0  # seconds: whoever looks whether FILE is locked holds it for an instant


def guarded(
    words: list[str],
    *,
    limit: int = 0,
    last: list[str] | None = None,
    stdin: int | None = None,
    grace: float = 0.0,
    hold: str = "",
) -> list[str]:
    """Return the command line that runs `words` under a guard, which the head of this file tells.

    Give what is started a pipe as its stdin, and keep that open. With `grace`, `words` may be
    written to through it.
    """
    options = {"--limit": str(limit or ""), "--last": " ".join(last or [])}
    options["--grace"] = str(grace or "")
    options["--input"] = "" if stdin is None else str(stdin)
    options["--hold"] = hold
    given = [word for option in options.items() if option[1] for word in option]
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *given, "--", *words]


def hide() -> None:
    """Close this process to others of the same user, on Linux.

    They can no longer read its memory, its files and its environment under /proc, nor trace it;
    root still can. Therefore the block that held the environment when the process began, which is
    what /proc/PID/environ shows, is emptied: os.environ keeps copies.
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
    """Run the command of the arguments."""
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
    """Return a descriptor from which the numbers of these signals can be read."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return woken


def _hold(file: str) -> None:
    """Lock a file until this process ends. The command does not inherit the descriptor."""
    import fcntl  # few commands need it

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
    """Return the id of the command's process, once it has a process group of its own."""
    guard, (started, start) = os.getpid(), os.pipe()
    if command := os.fork():
        os.close(start)
        os.close(stdin)
        os.read(started, 1)  # until the command's program has taken the place of ours
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
    """Return how the command ended, as os.wait tells it; see that it does when it must."""
    events = select.poll()
    events.register(0, 0 if grace else select.POLLIN)  # 0: only that it closed
    events.register(woken, select.POLLIN)
    ends = None  # when the command must have ended
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
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:  # orphans of the command come to us
            if ended[0] == command:
                return ended[1]
        if (ends and time.monotonic() >= ends) or (limit and os.fstat(2).st_size > limit):
            _signal(command, signal.SIGKILL)


def _signal(command: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(command, number)


def _kill_children() -> None:
    """Kill what the command has left behind, until there is none.

    The children of what is killed become ours. No other process can be hit by mistake: an id is
    free only once its parent, the guard, has waited for it. Processes of other users are left.
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
    import subprocess  # takes a while, and is seldom needed

    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        null = subprocess.DEVNULL
        subprocess.run(words, stdin=null, stdout=null, stderr=null, timeout=LAST_TIMEOUT)


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        with contextlib.suppress(OSError):  # nobody can handle SIGKILL
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
