"""Two ranks on this CPU do what one process does."""

from __future__ import annotations

import copy
import os
import pickle
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from batches import SAMPLING, MakePolicy, config, make_groups, teaching_nothing
from held import held_groups
from short_run import CONFIG
from torch._C._distributed_c10d import FileStore, TCPStore

from art_cli.config.sections.model import AdapterConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.errors import EngineError, PreflightError, TrainerError, UsageError
from art_cli.models.policy import Policy
from art_cli.runs.directory import RunDir
from art_cli.training.trainers.distributed import launch, messages
from art_cli.training.trainers.distributed.launch import LocalCrew, check_devices
from art_cli.training.trainers.distributed.ranks import RanksTrainer, serve_if_launched
from art_cli.training.trainers.grpo import GRPOTrainer
from tests import tiny_moe

MAX_KL = 0.005
DEADLINE = 300.0  # seconds: on a busy machine a start alone takes a minute


@contextmanager
def ranks(
    policy: Policy,
    rank: int,
    cfg: TrainConfig,
    logs: Path,
    targets: tuple[str, ...] = ("attention", "mlp"),
) -> Iterator[RanksTrainer]:
    """A trainer on two ranks."""
    adapter = (
        AdapterConfig(rank=rank, alpha=2 * rank, target_modules=list(targets)) if rank else None
    )
    trainer = RanksTrainer(policy, "cpu", adapter, cfg, SAMPLING, logs)
    try:
        yield trainer
    finally:
        trainer.close()


def settings(**changes: Any) -> TrainConfig:
    return config(num_processes=2, microbatch_tokens=100, learning_rate=1e-3, **changes)


def distance(a: Policy, b: Policy) -> float:
    pairs = zip(a.trainable, b.trainable, strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


@pytest.mark.parametrize(
    ("rank", "loss"),
    [pytest.param(0, "token_mean", marks=pytest.mark.slow), (4, "gspo")],
    ids=["full", "lora"],
)
def test_steps_on_two_ranks_are_those_of_one_process(
    make_policy: MakePolicy, tmp_path: Path, rank: int, loss: str
) -> None:
    """With a KL, recomputed layers, a clipped gradient, shortened steps, two passes or minibatches.
    Then each goes on from the other's checkpoint, and a gradient that is not finite stops neither.
    """
    more = {"clip_low": 0.2, "clip_high": 0.28} | (
        {"num_minibatches": 3} if rank else {"num_iterations": 2}
    )
    cfg = settings(kl_coef=0.1, max_grad_norm=0.5, max_kl=MAX_KL, loss=loss, **more)
    alone, together = make_policy(rank), make_policy(rank)
    for policy in (alone, together):
        policy.keep_reference()
    together.recompute_layers("on")
    groups = make_groups(alone, noise=0)
    one = GRPOTrainer(alone, cfg, SAMPLING)
    with ranks(together, rank, cfg, tmp_path) as two:
        found = [two.step(groups, i) for i in range(5)]
        assert_same(found, [one.step(groups, i) for i in range(5)])
        assert {metrics["loss/shortened"] > 0 for metrics in found} == {True, False}
        assert distance(alone, together) < 1e-5
        one.save(tmp_path / "one.pt")
        two.save(tmp_path / "two.pt")
        mine, theirs = (torch.load(tmp_path / f"{f}.pt") for f in ("two", "one"))
        assert_same_state(mine, theirs)

        one.load(tmp_path / "two.pt")
        two.load(tmp_path / "one.pt")
        broken = copy.deepcopy(groups)
        sequence = broken[0].trajectories[0].sequences[0]
        sequence.engine_logprobs[sequence.mask.index(1)] = float("nan")
        with pytest.raises(TrainerError, match="the gradient of step 6 is not finite"):
            two.step(broken, 5)
        assert_same([two.step(groups, 5)], [one.step(groups, 5)])
        assert distance(alone, together) < 1e-5


@pytest.mark.slow
def test_turns_held_to_a_schema_are_trained_on_two_ranks_as_in_one_process(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    """And are checked, if they come first and teach nothing."""
    cfg, alone, together = settings(), make_policy(4), make_policy(4)
    groups = held_groups(alone)
    one = GRPOTrainer(alone, cfg, SAMPLING)
    wrong = [teaching_nothing(group) for group in groups]
    for sequence in (s for group in wrong for t in group.trajectories for s in t.sequences):
        sequence.engine_logprobs = [e - 0.1 for e in sequence.engine_logprobs]
    with ranks(together, 4, cfg, tmp_path) as two:
        with pytest.raises(EngineError, match=r"not on-policy: .* is 0\.1 on average"):
            two.step(wrong, 0)
        metrics = [two.step(groups, i) for i in range(2)]
        assert_same(metrics, [one.step(groups, i) for i in range(2)])
    assert metrics[0]["loss/logprob_gap"] < 1e-5 and distance(alone, together) < 1e-5


@pytest.mark.slow
def test_two_ranks_adapt_experts_and_balance_routers_as_one_process_does(tmp_path: Path) -> None:
    cfg, targets = settings(router_aux_loss_coef=1.0), ("attention", "experts")
    adapter, tokenizer = (
        AdapterConfig(rank=2, alpha=4, target_modules=list(targets)),
        cast(Any, None),
    )
    alone, together = (Policy(tiny_moe.make("qwen3_moe"), tokenizer) for _ in range(2))
    for policy in (alone, together):
        policy.add_adapter(adapter, 0)
    together.recompute_layers("on")
    groups = make_groups(alone, noise=0)
    one = GRPOTrainer(alone, cfg, SAMPLING)
    with ranks(together, 2, cfg, tmp_path, targets) as two:
        found = [two.step(groups, i) for i in range(3)]
        assert_same(found, [one.step(groups, i) for i in range(3)])
        assert found[0]["loss/router_aux"] >= 1
        assert distance(alone, together) < 1e-5


def assert_same(found: list[dict[str, float]], expected: list[dict[str, float]]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def assert_same_state(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert mine["param_groups"] == theirs["param_groups"]
    assert mine["state"].keys() == theirs["state"].keys()
    for i, state in theirs["state"].items():
        for key, value in state.items():
            assert mine["state"][i][key].shape == value.shape
            assert torch.allclose(mine["state"][i][key], value, atol=1e-6)


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_step_with_its_last_lines(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    policy = make_policy()
    groups = make_groups(policy, noise=0)
    with ranks(policy, 0, settings(), tmp_path) as trainer:
        trainer.step(groups, 0)
        crew = trainer._crew
        assert isinstance(crew, LocalCrew)
        worker = crew._workers[1]
        with (tmp_path / "rank-1.log").open("a") as log:
            log.write("the last thing it said\n")
        Timer(0.2, worker.kill).start()  # most likely in the middle of a collective
        with pytest.raises(TrainerError, match="of rank 1 ended by signal 9") as raised:
            for i in range(1, 1000):
                trainer.step(groups, i)
        assert "the last thing it said" in str(raised.value)
    assert worker.poll() is not None


def test_a_worker_that_never_comes_is_told_with_its_last_lines(
    make_policy: MakePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "WORKER", "art_cli.no_such_module")
    policy = make_policy()
    with (
        ranks(policy, 0, settings(), tmp_path) as trainer,
        pytest.raises(TrainerError, match=r"No module named .*no_such_module"),
    ):
        trainer.step(make_groups(policy, noise=0), 0)


PARENT = """
import sys, time
from pathlib import Path
from art_cli.training.trainers.distributed.launch import LocalCrew
crew = LocalCrew(2, Path(sys.argv[1]))
crew.meet(2)
print(crew._workers[1].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_workers_end_when_rank_0_is_killed_and_leave_nothing(tmp_path: Path) -> None:
    """While they wait for what to do; tests/art_cli/test_listeners.py kills one that trains."""
    private = tmp_path / "tmp"
    private.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env=os.environ | {"TMPDIR": str(private)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout
        worker = int(parent.stdout.readline())
        [folder] = private.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        parent.kill()
    deadline = time.monotonic() + DEADLINE
    while is_alive(worker) or folder.exists():
        assert time.monotonic() < deadline, (tmp_path / "rank-1.log").read_text()
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


COMMAND = """
import sys
from art_cli.cli.main import main

def tell(event, arguments):
    frame = sys._getframe() if event == "pickle.find_class" else None
    while frame:
        if "distributed" in frame.f_code.co_filename or "art_cli" in frame.f_code.co_filename:
            print("unpickled", arguments, "in", frame.f_code.co_filename, flush=True)
        frame = frame.f_back

sys.addaudithook(tell)
sys.argv[0] = "art"
main()
"""


def art(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", "config.yaml", *arguments],
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_ranks_that_a_launcher_started_make_one_run_that_one_process_can_resume(
    tmp_path: Path,
) -> None:
    """As torchrun starts them, but for its store. Nothing that they say is unpickled."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    arguments = ("train.num_processes=2", "train.steps=2", "eval=null")
    ranks = [art(tmp_path, *arguments, **meet, RANK=str(i), LOCAL_RANK=str(i)) for i in (0, 1)]
    outputs = [p.communicate(timeout=DEADLINE)[0] for p in ranks]
    assert [p.returncode for p in ranks] == [0, 0], outputs
    assert not any("unpickled" in output for output in outputs), outputs
    assert "done at step 2/2" in outputs[0] and outputs[1] == ""
    alone = art(tmp_path, "train.steps=3", "eval=null", "--resume")
    output = alone.communicate(timeout=DEADLINE)[0]
    assert alone.returncode == 0, output
    rows = RunDir(tmp_path / "runs" / "test" / "short").read_metrics()
    assert [r["training_step"] for r in rows] == [1, 2, 3]
    assert all(r["loss/grad_norm"] > 0 for r in rows)


class Evil:
    """Who unpickles it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.slow
def test_what_someone_else_puts_into_the_store_runs_no_code(tmp_path: Path) -> None:
    """A launcher's store asks nobody who they are."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("command/0", pickle.dumps(("form", Evil(tmp_path / "evil"))))  # type: ignore[arg-type]
    meet = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    rank = art(tmp_path, "train.num_processes=2", **meet, RANK="1", LOCAL_RANK="1")
    output = rank.communicate(timeout=DEADLINE)[0]
    assert rank.returncode != 0 and "received an invalid command" in output
    assert "Traceback" not in output
    assert not (tmp_path / "evil").exists()


EVIL_RANK = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from art_cli.training.trainers.distributed import messages

class Evil:
    def __reduce__(self):
        return Path.touch, (Path(sys.argv[2]),)

dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=1, world_size=2)
messages.send({"a": [1, 0.1, None, (True, "b")], "c": torch.arange(3)}, 0)
messages.send(Evil(), 0)
"""


@pytest.mark.slow
def test_what_a_rank_sends_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, evil = tmp_path / "store", tmp_path / "evil"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with subprocess.Popen([sys.executable, "-c", EVIL_RANK, str(store), str(evil)]):
        dist.init_process_group("gloo", store=FileStore(str(store), 2), rank=0, world_size=2)
        try:
            plain = messages.receive(1)
            assert plain["a"] == [1, 0.1, None, (True, "b")] and plain["c"].tolist() == [0, 1, 2]
            with pytest.raises(RuntimeError, match="rank 1 sent something other than plain data"):
                messages.receive(1)
        finally:
            dist.destroy_process_group()
    assert not evil.exists()


def test_another_number_of_processes_than_the_launchers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "1"}
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="is 2, but the launcher started 4 processes"):
        serve_if_launched(2)
    monkeypatch.setenv("WORLD_SIZE", "1")  # a launcher of one process shares nothing
    assert not serve_if_launched(2)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(PreflightError, match="is 2, but torch sees 1 CUDA device and each"):
        check_devices(2, "auto")
    check_devices(2, "cpu")
