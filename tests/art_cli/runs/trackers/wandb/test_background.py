import threading
import time

from art_cli.runs.trackers.wandb.background import BackgroundQueue


def test_jobs_are_done_in_order_by_another_thread() -> None:
    done: list[int] = []
    threads: set[str] = set()
    courier = BackgroundQueue("helper")
    for n in range(100):
        courier.hand(lambda n=n: done.append(n))
    courier.hand(lambda: threads.add(threading.current_thread().name))
    assert courier.catches_up(300)
    assert done == list(range(100)) and threads == {"helper"}


def test_nobody_waits_for_a_job_that_hangs() -> None:
    courier, over = BackgroundQueue("helper"), threading.Event()
    courier.hand(over.wait)
    assert not courier.catches_up(0.05)
    over.set()
    assert courier.catches_up(300)


def test_many_jobs_are_waited_for_as_long_as_some_get_done() -> None:
    courier = BackgroundQueue("helper")
    for _ in range(30):
        courier.hand(lambda: time.sleep(0.1))
    assert courier.catches_up(2)  # in all they take longer
