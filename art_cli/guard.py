"""Runs a command and sees that nothing of it outlives its starter: python guard.py WORD...

Stdin is a pipe that the starter holds open and never writes to: it closes when the starter dies, in
whatever way, and then the command's process group is killed. So it is when the command itself ends:
vLLM's engine processes do not notice that their server was killed, and would keep the GPU's memory.
SIGTERM is handed on. The exit code is the command's, or 128 + the signal that ended it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Run the command of the arguments."""
    asked = threading.Event()  # to end, maybe before there is a command
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def group(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.pid, number)

    def end_with_starter() -> None:
        while os.read(0, 1):
            pass
        group(signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: group(signal.SIGTERM))
    if asked.is_set():
        group(signal.SIGTERM)
    threading.Thread(target=end_with_starter, daemon=True).start()
    code = command.wait()
    group(signal.SIGKILL)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
