from art_cli.runs.trackers.base import Trackers


class Recorder:
    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order = name, order

    def log(self, metrics: dict[str, float]) -> None:
        metrics["touched"] = 1.0
        self.order.append(f"{self.name} {sorted(metrics)}")

    def finish(self, state: str) -> None:
        self.order.append(f"{self.name} {state}")


class Broken:
    calls = 0

    def log(self, metrics: dict[str, float]) -> None:
        self.calls += 1
        raise ConnectionError("no route")

    def finish(self, state: str) -> None:
        raise AssertionError("a tracker that is off is not called again")


def test_each_tracker_gets_its_own_copy_in_order() -> None:
    order: list[str] = []
    trackers = Trackers([Recorder("a", order), Recorder("b", order)], order.append)
    trackers.log({"x": 1.0})
    trackers.finish("done")
    assert order == ["a ['touched', 'x']", "b ['touched', 'x']", "a done", "b done"]


def test_a_tracker_that_raises_is_told_once_and_switched_off() -> None:
    order: list[str] = []
    broken, said = Broken(), []
    trackers = Trackers([broken, Recorder("b", order)], said.append)
    for _ in range(3):
        trackers.log({"x": 1.0})
    trackers.finish("done")
    assert said == ["Broken is switched off: ConnectionError: no route"]
    assert broken.calls == 1
    assert len(order) == 4


def test_a_second_finish_does_nothing() -> None:
    order: list[str] = []
    trackers = Trackers([Recorder("a", order)], order.append)
    trackers.finish("failed")
    trackers.finish("done")
    assert order == ["a failed"]
