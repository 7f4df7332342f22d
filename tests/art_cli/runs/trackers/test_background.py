import threading
import time

import pytest

from art_cli.runs.trackers.background import BackgroundQueue


def test_jobs_are_done_in_order_by_another_thread() -> None:
    done: list[int] = []
    threads: set[str] = set()
    jobs = BackgroundQueue("helper")
    for n in range(100):
        jobs.hand(lambda n=n: done.append(n))
    jobs.hand(lambda: threads.add(threading.current_thread().name))
    assert jobs.catches_up(300)
    assert done == list(range(100)) and threads == {"helper"}


def test_nobody_waits_for_a_job_that_hangs() -> None:
    jobs, over = BackgroundQueue("helper"), threading.Event()
    jobs.hand(over.wait)
    assert not jobs.catches_up(0.05)
    over.set()
    assert jobs.catches_up(300)


@pytest.mark.slow
def test_many_jobs_are_waited_for_as_long_as_some_get_done() -> None:
    jobs = BackgroundQueue("helper")
    for _ in range(30):
        jobs.hand(lambda: time.sleep(0.1))
    assert jobs.catches_up(2)  # in all they take longer
