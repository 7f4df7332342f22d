"""A worker: takes an episode from the queue, plays it, and posts its end to art.

python configs/agent-service/worker.py http://127.0.0.1:8900/next
"""

from __future__ import annotations

import os
import sys
import time
import urllib.error

from agent import play, post

KEY = os.environ.get("SERVICE_KEY", "")
TRIES = 5  # to post an end; one that art has already counted is answered with 409


def main(next_url: str) -> None:
    """Play until the process is ended."""
    while True:
        try:
            task = post(next_url, KEY, {})
        except OSError:  # the queue is not there, or starts anew
            time.sleep(1)
            continue
        if task is None:
            continue
        try:
            end = play(task)
        except Exception as e:
            end = {"error": f"{type(e).__name__}: {e}"}
        for attempt in range(TRIES):
            try:
                post(task["end_url"], task["api_key"], end)
                break
            except urllib.error.HTTPError as e:  # it is over, or was counted
                sys.stderr.write(f"{task['id']}: {e.code} {e.read().decode()}\n")
                break
            except OSError:
                time.sleep(2**attempt)


if __name__ == "__main__":
    main(sys.argv[1])
