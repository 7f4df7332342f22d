"""Ctrl-C and --resume: a run that was stopped ends as if it had not been."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from short_run import CONFIG, Art, held_after, results, until, with_pauses


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Art:
    """A run that nobody stopped."""
    art = start(tmp_path_factory.mktemp("whole"))
    assert art.wait() == 0, art.output
    return art


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, whole: Art) -> Art:
    """A run that got one Ctrl-C in its third step."""
    art = start(tmp_path_factory.mktemp("stopped"))
    held_after(2, art)
    art.signal(signal.SIGINT)
    until(lambda: "stopping after this step" in art.output, art)
    (art.folder / "hold").unlink()
    assert art.wait() == 130, art.output
    return art


def start(folder: Path, *arguments: str) -> Art:
    (folder / "config.yaml").write_text(with_pauses(folder, CONFIG))
    return Art(folder, "config.yaml", *arguments)


def test_the_short_run_learns_something(whole: Art) -> None:
    rows = results(whole.run)["metrics"]
    norms = [row["loss/grad_norm"] for row in rows if "loss/grad_norm" in row]
    assert len(norms) >= 6 and min(norms) > 0


def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(stopped: Art) -> None:
    rewards = [r for r in stopped.run.read_metrics() if "train/reward" in r]
    assert stopped.run.checkpoint_steps()[-1] == rewards[-1]["training_step"] < 8
    assert stopped.run.state() == "interrupted"
    assert "stopping after this step" in stopped.output
    assert f"stopped after step {len(rewards)}; go on: art run config.yaml --resume" in (
        stopped.output
    )
    assert "Traceback" not in stopped.output


def test_a_resumed_run_ends_as_if_it_had_not_been_stopped(whole: Art, stopped: Art) -> None:
    again = start(stopped.folder, "--resume")
    assert again.wait() == 0, again.output
    expected, found = results(whole.run), results(again.run)
    assert found["metrics"] == expected["metrics"]
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert again.run.state() == "done"


def test_resuming_a_finished_run_changes_nothing(whole: Art) -> None:
    before = results(whole.run)
    again = start(whole.folder, "--resume")
    assert again.wait() == 0, again.output
    assert results(again.run) == before


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    art = start(tmp_path)
    until(lambda: "step 0  val" in art.output, art)
    (tmp_path / "pause").write_text("600")
    art.signal(signal.SIGINT)
    until(lambda: "stopping after this step" in art.output, art)
    art.signal(signal.SIGINT)
    assert art.wait() == 130
    assert art.run.state() == "killed" and "Traceback" not in art.output


def test_a_step_is_saved_before_its_evaluation_is_left(tmp_path: Path, whole: Art) -> None:
    art = start(tmp_path)
    held_after(3, art)  # whose evaluation waits
    until((tmp_path / "held").exists, art)
    art.signal(signal.SIGTERM)
    assert art.wait() == 130, art.output  # while its episodes wait
    assert "stopped after step 3" in art.output and art.run.checkpoint_steps()[-1] == 3
    (tmp_path / "hold").unlink()
    again = start(tmp_path, "--resume")
    assert again.wait() == 0, again.output
    assert results(again.run) == results(whole.run)


def test_the_last_evaluation_is_made_up_for(tmp_path: Path, whole: Art) -> None:
    art = start(tmp_path)
    held_after(8, art)
    until((tmp_path / "held").exists, art)
    art.signal(signal.SIGINT)
    assert art.wait() == 130, art.output
    assert art.run.state() == "interrupted" and "trained" not in art.output.splitlines()[-1]
    (tmp_path / "hold").unlink()
    again = start(tmp_path, "--resume")
    assert again.wait() == 0, again.output
    assert results(again.run) == results(whole.run)


def test_ctrl_c_is_heard_while_torch_is_imported(tmp_path: Path) -> None:
    """Without the forks of other tests, which have imported it already."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "site").mkdir()
    slow = "import time\nopen('importing', 'w')\nfor _ in range(6000): time.sleep(0.01)\n"
    (tmp_path / "site" / "torch.py").write_text(slow)  # in its place
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "art_cli", "run", "config.yaml"]
    art = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not (tmp_path / "importing").exists():
        assert art.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    art.send_signal(signal.SIGINT)
    _, said = art.communicate(timeout=50)  # it would be a minute otherwise
    assert art.returncode == 130 and said.endswith("interrupted\n") and "Traceback" not in said
