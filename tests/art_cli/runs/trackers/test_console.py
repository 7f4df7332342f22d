import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from art_cli.runs.trackers.console import Console
from art_cli.runs.trackers.run_numbers import clock_text, sparkline
from art_cli.system import progress
from art_cli.terminal.screen import Screen

STEP = {
    "train/reward": 0.625,
    "train/reward_std": 0.31,
    "loss/kl": 0.0021,
    "loss/grad_norm": 0.3,
    "data/groups": 16,
    "data/groups_zero_variance": 4,
    "data/trajectories": 128,
    "data/trajectories_failed": 2,
    "data/truncated": 32,
    "time/rollout_s": 6.0,
    "time/train_s": 4.0,
    "throughput/rollout_tok_s": 1830.4,
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def step(number: int, **changes: Any) -> dict[str, Any]:
    return STEP | {"training_step": number} | changes


def evaluation(number: int, reward: float) -> dict[str, Any]:
    return {"training_step": number, "val/reward": reward, "val/reward_ci": 0.05}


def panel(feed: Callable[[Console], None], width: int = 80, **kwargs: Any) -> str:
    """The last picture of a live panel, without colors."""
    rich = Screen(file=io.StringIO(), width=width, force_terminal=True, record=True)
    console = Console(100, "support/retail-7b", plain=False, console=rich, **kwargs)
    feed(console)
    rich.print(console._draw())
    return rich.export_text()


def plain(feed: Callable[[Console], None], total: int = 100, clock: Clock | None = None) -> str:
    file = io.StringIO()
    rich = Screen(file=file, width=80)
    with Console(total, "support/retail-7b", console=rich, clock=clock or Clock()) as console:
        feed(console)
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_panel_shows_progress_reward_and_where_the_time_goes(width: int) -> None:
    def feed(console: Console) -> None:
        for number, reward in ((0, 0.41), (60, 0.85), (80, 0.83)):
            console.log(evaluation(number, reward))
        for number in range(1, 81):
            console.log(step(number, **{"train/reward": number / 100}))

    lines = panel(feed, width).splitlines()
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        text = "\n".join(lines)
        assert "80/100" in text and "0.80 ±0.31" in text and "▁▁▁▂▂▂" in text
        assert "0.41 → 0.83 ±0.05  (best 0.85 at step 60)" in text
        assert "no signal in 25% of groups · 25% truncated · 2 failed" in text
        assert "rollout 60% · train 40%" in text and "rollout 1,830 tok/s" in text


@pytest.mark.parametrize("width", [30, 40, 60])
def test_on_a_narrow_terminal_labels_stay_whole_and_what_is_wide_wraps(width: int) -> None:
    def feed(console: Console) -> None:
        console.log(evaluation(0, 0.41) | {"val/success": 0.25})
        for number in range(1, 81):
            console.log(step(number))
        console.phase("evaluating", 3, 128)

    text = panel(feed, width)
    assert all(len(line) <= width for line in text.splitlines())
    labels = {line.split(" ")[0] for line in text.splitlines()[1:]}
    assert {"step", "reward", "val", "data", "policy", "time", "speed"} <= labels
    words = " ".join(text.split())
    for shown in ("80/100", "no signal in 25% of groups · 25% truncated · 2 failed", "3/128"):
        assert shown in words
    assert "…" not in text.replace("support/retail-7b", "")


def test_steps_without_a_signal_are_told_once_each_time_they_begin() -> None:
    def feed(console: Console) -> None:
        for number in range(1, 40):
            has_signal = number % 11 == 0 and number < 20
            console.log(step(number, **{"data/groups_zero_variance": 15 if has_signal else 16}))

    assert plain(feed).count("warning: no signal in any group for 10 steps") == 2


def test_a_phase_shows_how_far_it_is_and_what_is_left() -> None:
    clock = Clock()

    def feed(console: Console) -> None:
        console.phase("warming up, loss 2.50", 0, 400)
        clock.now = 30.0
        console.phase("warming up, loss 1.23", 100, 400)

    assert "warming up, loss 1.23" in (text := panel(feed, clock=clock))
    assert "100/400  1:30 left" in text


def test_the_time_left_is_that_of_this_machine() -> None:
    clock = Clock()

    def feed(console: Console) -> None:
        for number in range(1, 11):
            clock.now += 12.0
            console.log(step(number, **{"time/step_s": 999.0}))

    assert "10/100" in (text := panel(feed, clock=clock))
    assert "12.0 s/step, 18:00 left" in text


def test_a_resumed_run_starts_with_its_history() -> None:
    history = [evaluation(0, 0.2), step(1), step(2, **{"train/reward": None}), evaluation(2, 0.6)]
    text = panel(lambda console: console.log(step(3)), history=history)
    assert "3/100" in text and "0.20 → 0.60 ±0.05  (best so far)" in text
    assert "▄ ▄" in text  # a gap where a reward is missing


def test_any_metric_may_be_missing_or_not_a_number() -> None:
    def feed(console: Console) -> None:
        console.log({"training_step": 1})
        console.log({"training_step": 2, "train/reward": float("nan"), "loss/kl": float("inf")})

    text = panel(feed)
    assert "2/100" in text and "kl" not in text and "nan" not in text


def test_plain_mode_is_lines_without_control_characters() -> None:
    def feed(console: Console) -> None:
        console.phase("making the model")
        console.log(evaluation(0, 0.41))
        console.log(step(1))
        console.log(evaluation(1, 0.5))
        console.finish("done")

    lines = plain(feed, total=1).splitlines()
    assert lines[:3] == [
        "support/retail-7b",
        "making the model",
        "step 0  val 0.41 +/-0.05  (untrained)",
    ]
    assert lines[3].startswith("step 1/1  reward 0.62 +/-0.31  no signal in 25% of groups")
    assert lines[4] == "step 1  val 0.41 -> 0.50 +/-0.05  (best so far)"
    assert lines[5].startswith("done at step 1/1 after 0:00; val 0.41 -> 0.50")
    assert "\x1b" not in "".join(lines) and "\r" not in "".join(lines)


def test_plain_mode_is_sparing_with_lines() -> None:
    clock = Clock()

    def feed(console: Console) -> None:
        for number in range(1, 101):
            clock.now += 0.1
            console.phase(f"step {number}: rolling out", 0, 64)
            console.log(step(number))

    lines = plain(feed, clock=clock).splitlines()
    assert sum(line.startswith("step ") and "reward" in line for line in lines) == 6
    assert "step 100/100" in lines[-1]
    assert len(lines) <= 8


def test_a_long_phase_is_told_again_in_plain_mode() -> None:
    clock = Clock()

    def feed(console: Console) -> None:
        for done in range(0, 401):
            clock.now += 0.1
            console.phase(f"warming up, loss {3 - done / 200:.2f}", done, 400)

    lines = plain(feed, clock=clock).splitlines()
    assert lines[1] == "warming up, loss 3.00 0/400"
    assert len(lines) == 5


def test_a_phase_that_says_nothing_is_told_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "LOOKS", 0.01)
    clock, told, file = Clock(), threading.Event(), io.StringIO()
    console = Console(100, "x", console=Screen(file=file, width=80), clock=clock)
    monkeypatch.setattr(console, "say", lambda line: (lines.append(line), told.set()))
    lines: list[str] = []
    with console:
        console.phase("updating")
        told.clear()
        clock.now += 70.0  # in which the main thread is busy
        assert told.wait(60) and lines[-1] == "updating  1:10"
    console._said = -100.0
    lines.clear()
    console._tell_silence()
    assert not lines  # once it has ended


def test_an_error_gives_the_terminal_back() -> None:
    rich = Screen(file=io.StringIO(), width=80, force_terminal=True)
    with pytest.raises(KeyError), Console(10, "x", plain=False, console=rich) as console:
        console.log(step(1))
        raise KeyError
    output = rich.file.getvalue()  # type: ignore[attr-defined]
    assert output.rfind("\x1b[?25h") > output.rfind("\x1b[?25l")  # the cursor is shown again
    console.finish("failed")
    console.say("still prints")
    assert rich.file.getvalue().endswith("still prints\n")  # type: ignore[attr-defined]


def test_a_reader_that_goes_away_does_not_stop_the_run() -> None:
    script = (
        "from art_cli.runs.trackers.console import Console\n"
        "import sys\n"
        "with Console(9, 'x') as c:\n"
        "    for i in range(2000): c.say('line ' * 20)\n"
        "    c.log({'training_step': 1, 'train/reward': 1.0}); c.finish('done')\n"
        "sys.stderr.write('went on')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"went on"
    process.stderr.close()
    assert process.wait() == 0


def test_an_ascii_pipe_gets_ascii() -> None:
    script = (
        "from art_cli.runs.trackers.console import Console\n"
        "with Console(9, 'a · b') as c: c.log({'training_step': 0, 'val/reward': 1.0})"
    )
    env = os.environ | {"PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1"}
    result = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, check=True
    )
    assert result.stdout == b"a ? b\nstep 0  val 1.00  (untrained)\n"


def test_sparklines_span_their_own_range() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.3, None, 0.3]) == "▄ ▄"
    assert sparkline([]) == ""


def test_clocks_read_as_a_person_says_them() -> None:
    assert [clock_text(s) for s in (7, 760, 11100)] == ["0:07", "12:40", "3:05:00"]
