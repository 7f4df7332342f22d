import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from art_cli.errors import ArtError, PreflightError, UsageError
from art_cli.runs import directory as rundir
from art_cli.runs.directory import RunDir
from art_cli.runs.summary import list_runs, summary_of
from art_cli.runs.trajectories import read_good_rows
from art_cli.system.files import atomic_write, json_line
from art_cli.types import Scenario, Sequence, Step, Trajectory, TrajectoryGroup

HOLD = """
import sys, time
from pathlib import Path
from art_cli.runs.directory import RunDir
with RunDir(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""
HOLD_AND_FORK = """
import os, sys, time
from pathlib import Path
from art_cli.runs.directory import RunDir
with RunDir(Path(sys.argv[1])).lock():
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(child, flush=True)
    time.sleep(60)
"""
FILL = """
import resource, sys
from pathlib import Path
from art_cli.system.files import atomic_write
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
atomic_write(Path(sys.argv[1]), "x" * 5000)
"""

Start = Callable[[str, Path], tuple[subprocess.Popen[str], str]]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir.create(tmp_path / "runs" / "support" / "retail")
    run.config.write_text("name: retail\n")
    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a script in a second process and wait for its first line."""
    processes: list[subprocess.Popen[str]] = []

    def start(script: str, path: Path) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", script, str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def group(reward: float | None = 1.0, **scenario_data: object) -> TrajectoryGroup:
    scenario = Scenario(id="train-7", split="train", seed=7, data=dict(scenario_data))
    trajectory = Trajectory(
        scenario=scenario,
        messages=[{"role": "user", "content": "héllo"}],
        sequences=[Sequence(ids=[1, 2, 3], mask=[0, 1, 1], engine_logprobs=[0.0, -0.1, -1 / 3])],
        reward=reward,
        metrics={"won": 1.0},
        policy_versions=[4],
        steps=[Step(turn=0, tool="look", arguments={"at": "é"}, result="a mug")],
        side_conversations=[[{"role": "user", "content": "a title?"}]],
    )
    return TrajectoryGroup([trajectory, trajectory])


def test_a_second_process_is_told_who_holds_the_run(run: RunDir, start: Start) -> None:
    holder, line = start(HOLD, run.root)
    assert line == "held"
    with pytest.raises(PreflightError, match=f"process {holder.pid} on .* since 20.*kill -INT"):
        run.lock().__enter__()
    assert run.is_locked()


def test_kill_9_frees_the_lock_and_the_state_is_killed(run: RunDir, start: Start) -> None:
    run.write_status("running", 3, 10)
    holder, _ = start(HOLD, run.root)
    assert run.state() == "running"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert run.state() == "killed"
    with run.lock():
        assert run.state() == "running"


def test_a_forked_worker_that_survives_does_not_keep_the_lock(run: RunDir, start: Start) -> None:
    holder, child = start(HOLD_AND_FORK, run.root)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    try:
        for _ in range(3000):  # on a busy machine the child may not have run at all yet
            if not run.is_locked():
                break
            time.sleep(0.1)
        assert not run.is_locked()
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_looking_at_a_lock_does_not_stop_a_run_from_starting(
    run: RunDir, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "LOCK_PATIENCE", 60)  # the other is slow on a busy machine
    peek = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH);"
    run.lock_file.touch()
    start(peek + "print('peeking', flush=True); time.sleep(0.2); f.close()", run.lock_file)
    with run.lock():
        assert run.is_locked()


def test_a_lock_in_a_missing_folder_is_a_preflight_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="No such file"):
        RunDir(tmp_path / "nowhere").lock().__enter__()


def test_the_lock_is_free_after_an_exception(run: RunDir) -> None:
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    assert not run.is_locked()
    assert run.state() == "new"


def test_a_full_disk_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    atomic_write(path, "old")
    result = subprocess.run(
        [sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=False
    )
    assert "ArtError: cannot write" in result.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_trajectories_come_back_exactly(run: RunDir) -> None:
    run.write_trajectories(12, "train", [group(), group(None, goal="win")])
    rows = run.read_trajectories(12, "train")
    assert [(r["group"], r["index"], r["reward"]) for r in rows][1:3] == [(0, 1, 1.0), (1, 0, None)]
    assert rows[2]["scenario"] == {"goal": "win"} and rows[2]["seed"] == 7
    assert rows[0]["sequences"][0]["engine_logprobs"] == [0.0, -0.1, -1 / 3]
    assert rows[0]["messages"][0]["content"] == "héllo"
    assert rows[0]["side_conversations"] == [[{"role": "user", "content": "a title?"}]]
    step = {"turn": 0, "tool": "look", "arguments": {"at": "é"}, "result": "a mug"}
    assert rows[0]["steps"] == [step | {"said": "", "is_error": False, "is_unknown": False}]
    assert (rows[0]["num_turns"], rows[0]["num_sampled"], rows[0]["stop_reason"]) == (1, 2, "env")
    assert (run.trajectories / "train-000012.jsonl.gz").exists()


def test_rows_are_read_without_tokens_whatever_the_order_of_their_keys(run: RunDir) -> None:
    path = run.write_trajectories(1, "train", [group(sequences=[{"ids": 1}])])
    whole = [row | {"sequences": [{}]} for row in run.read_trajectories(1, "train")]
    assert read_good_rows(path, tokens=False) == (whole, "")
    other = [
        {"sequences": row.pop("sequences"), **row} for row in run.read_trajectories(1, "train")
    ]
    path.write_bytes(gzip.compress("".join(map(json_line, other)).encode()))
    assert read_good_rows(path, tokens=False) == (other, "")


def test_rows_say_where_turns_begin_that_have_advantages_of_their_own(run: RunDir) -> None:
    both = group()
    both.trajectories[0].turn_advantages = [0.5]
    both.trajectories[0].sequences[0].begins = [1]
    run.write_trajectories(1, "train", [both])
    row = run.read_trajectories(1, "train")[0]
    assert (row["turn_advantages"], row["sequences"][0]["begins"]) == ([0.5], [1])


def test_the_same_trajectories_give_the_same_bytes(run: RunDir) -> None:
    first = run.write_trajectories(1, "val", [group()]).read_bytes()
    time.sleep(1.1)  # gzip would write the second into its header
    assert run.write_trajectories(1, "val", [group()]).read_bytes() == first


def test_a_reward_that_is_not_a_number_is_null_in_strict_json(run: RunDir) -> None:
    path = run.write_trajectories(1, "train", [group(float("nan"))])
    assert "NaN" not in gzip.decompress(path.read_bytes()).decode()
    assert run.read_trajectories(1, "train")[0]["reward"] is None


def test_pandas_reads_the_trajectories_alone(run: RunDir) -> None:
    pandas = pytest.importorskip("pandas")
    path = run.write_trajectories(1, "train", [group(0.5), group(1.0)])
    frame = pandas.read_json(path, lines=True)
    assert list(frame.groupby("group").reward.mean()) == [0.5, 1.0]


def test_missing_trajectories_say_which_there_are(run: RunDir) -> None:
    run.write_trajectories(2, "val", [group()])
    run.write_trajectories(4, "val", [group()])
    with pytest.raises(UsageError, match=r"no val trajectories of step 3.*steps 2 to 4"):
        run.read_trajectories(3, "val")


def test_metrics_of_a_killed_run_are_read_without_the_torn_line(run: RunDir) -> None:
    run.metrics.write_text('{"training_step": 1, "train/reward": 0.5}\n{"training_step": 2, "tr')
    assert run.read_metrics() == [{"training_step": 1, "train/reward": 0.5}]


def test_resuming_forgets_what_came_after_the_step(run: RunDir) -> None:
    lines = [f'{{"training_step": {step}}}' for step in (0, 1, 2, 3)]
    run.metrics.write_text("\n".join(lines) + '\n{"training_st')
    for step in (1, 2, 3):
        run.write_trajectories(step, "train", [group()])
    (run.trajectories / ".train-000003.jsonl.gz.99.tmp").touch()
    run.truncate_metrics(2)
    assert run.metrics.read_text() == "".join(line + "\n" for line in lines[:3])
    assert run.trajectory_steps("train") == [1, 2]
    assert len(list(run.trajectories.iterdir())) == 2


def test_damaged_files_of_a_run_are_named_and_all_else_is_shown(run: RunDir) -> None:
    run.write_status("done", 2, 2)
    good = [b'{"training_step": 1, "train/reward": 0.5}', b'{"training_step": 2}']
    bad = [b'{"training_step": 1, "tr', b"\xff\xfe\x00", b"[" * 100_000]
    run.metrics.write_bytes(b"\n".join([good[0], *bad, good[1], b""]))
    run.costs.write_text('{"usd": 1}\n{"usd": \n{"usd": 1}\n')
    run.llm_costs.mkdir()
    [found] = list_runs(run.root.parent.parent)
    assert (found.state, found.step, found.train_reward) == ("done", 2, 0.5)
    assert [line.partition(" is damaged and left out: ")[0] for line in found.damaged] == [
        *(f"{run.metrics}:{n}" for n in (2, 3, 4)),
        f"{run.costs}:2",
        f"{run.llm_costs}: cannot be read: Is a directory",
    ]


@pytest.mark.parametrize(
    "status",
    ["{", "[]", '{"state": 7}', '"\\ud800"', "[" * 100_000, "\x00", None],
)
def test_a_damaged_status_is_named_and_the_run_is_listed(run: RunDir, status: str | None) -> None:
    run.metrics.write_text('{"training_step": 3, "val/reward": "high"}\n')
    if status is None:
        run.status.mkdir()
    else:
        run.status.write_text(status)
    [found] = list_runs(run.root.parent.parent)
    assert (found.state, found.step, found.val_reward) == ("new", 3, None)
    assert [line.partition(" is ")[0] for line in found.damaged] == [
        f"{run.metrics}:1",
        str(run.status),
    ]


def test_a_number_that_is_no_number_in_a_status_is_no_status(run: RunDir) -> None:
    run.write_status("running", 1, 2)
    run.status.write_text(run.status.read_text().replace('"step": 1', '"step": "1"'))
    assert run.read_status() is None and summary_of(run).step == 0


def test_damaged_trajectories_are_told_with_their_line(run: RunDir) -> None:
    path = run.write_trajectories(2, "val", [group()])
    whole = path.read_bytes()
    spoilt = (whole[: len(whole) // 2], b"not gzip", gzip.compress(b'{"a": 1}\n\xff\n'))
    for content, line in zip(spoilt, (1, 1, 2), strict=True):
        path.write_bytes(content)
        with pytest.raises(ArtError, match=rf"val-000002.jsonl.gz:{line} is damaged"):
            run.read_trajectories(2, "val")


def test_a_file_that_no_run_has_written_is_left_where_it_is(run: RunDir) -> None:
    copy = run.trajectories / "train-000002 (copy).jsonl.gz"
    copy.touch()
    assert run.trajectory_steps("train") == []
    run.truncate_metrics(-1)
    assert copy.exists()


def test_runs_are_listed_newest_first_with_their_rewards(run: RunDir) -> None:
    run.write_status("done", 2, 2)
    rows = ["0, 'val/reward': 0.4", "1, 'train/reward': 0.6", "2, 'val/reward': 0.9", "2, 'val/rew"]
    text = "\n".join(f"{{'training_step': {row}}}" for row in rows[:3]) + "\n" + rows[3]
    run.metrics.write_text(text.replace("'", '"'))
    later = RunDir.create(run.root.parent.parent / "games" / "2048")
    later.config.write_text("name: 2048\n")
    os.utime(later.config, (time.time() + 60, time.time() + 60))
    new, old = list_runs(run.root.parent.parent)
    assert (new.project, new.name, new.state, new.val_reward) == ("games", "2048", "new", None)
    assert (old.state, old.step, old.steps, old.train_reward) == ("done", 2, 2, 0.6)
    assert (old.val_reward, old.best_val_reward) == (0.9, 0.9)


def test_a_run_is_never_started_over_another(run: RunDir) -> None:
    run.metrics.write_text('{"training_step": 0}\n')
    with pytest.raises(UsageError, match=r"already holds a run.*--resume"):
        RunDir.create(run.root)


def test_a_run_that_came_to_nothing_may_be_started_again(run: RunDir) -> None:
    assert run.config.exists() and not run.is_begun()
    assert RunDir.create(run.root).root == run.root


def test_a_run_that_is_not_there_is_named_with_its_neighbours(run: RunDir) -> None:
    assert RunDir.open(run.root).root == run.root
    run.metrics.touch()
    with pytest.raises(UsageError, match=r"retial holds no run.*There is: .*retail"):
        RunDir.open(run.root.with_name("retial"))


def test_half_made_checkpoints_are_not_steps(run: RunDir) -> None:
    run.checkpoint(10).mkdir()
    run.checkpoint(9).mkdir()
    (run.checkpoints / ".11.tmp").mkdir()
    assert run.checkpoint_steps() == [9, 10]
