"""Two nodes that train one model or serve it, and what SkyPilot's own command rents."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterator

import pytest
from sky_user import SMALL, User, slurm

from art_cli.runs.directory import RunDir

NODES = (
    "backend.use=skypilot",
    "backend.cluster=art-two",
    "backend.num_nodes=2",
    f"backend.resources={SMALL}",
)
SERVED = ("engine.use=vllm", "engine.nodes=1")


@pytest.fixture(scope="module")
def empty_vllm(request: pytest.FixtureRequest) -> Iterator[None]:
    """A package of that name for the nodes, which have no room for the real one."""
    wheel = request.config.rootpath / ".venv-sky" / "wheels" / "vllm-0.32.0-py3-none-any.whl"
    info = "vllm-0.32.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/__init__.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    yield
    wheel.unlink()


@pytest.fixture(scope="module")
def two_nodes(empty_vllm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The cluster art-two is up."""
    user = User(tmp_path_factory.mktemp("launch"))
    user.art("launch-cluster", "config.yaml", *NODES, *SERVED, "--yes")
    yield
    user.art("cluster", "down", "art-two")
    assert "art-two" not in user.art("clusters")


@pytest.mark.usefixtures("two_nodes")
def test_two_nodes_train_one_model(user: User) -> None:
    printed = user.art("run", "config.yaml", *NODES, "train.num_processes=2")
    assert "step 3/3" in printed
    machines = [line.split() for line in slurm("squeue", "-h", "-o", "%j %D").splitlines()]
    assert sum(int(num) for job, num in machines if job.startswith("art-two")) == 2
    run = RunDir(user.folder / "runs" / "sky" / "config")
    assert run.state() == "done" and run.read_metrics()[-1]["training_step"] == 3


@pytest.mark.usefixtures("two_nodes")
def test_a_run_finds_its_node_that_serves_and_hears_what_it_lacks(user: User) -> None:
    printed = user.art("run", "config.yaml", *NODES, *SERVED, "name=served", code=3)
    assert re.search(r"the engine's node [\d.]+: engine.use is vllm, but there is no GPU", printed)
    assert "was not told that the run is over" not in printed and "TOKEN" not in printed


def test_skypilot_s_own_command_rents_a_cluster_with_art_on_it(
    user: User, request: pytest.FixtureRequest
) -> None:
    (user.folder / "loop.yaml").write_text(f"backend: {{use: skypilot, resources: {SMALL}}}\n")
    configs = ("config.yaml", "loop.yaml")
    printed = user.art("launch-cluster", *configs, "--export", "task")
    assert "sky launch -c NAME" in printed and (user.folder / "task" / "task.yaml").is_file()
    script = request.config.rootpath / "scripts" / "launch-cluster.sh"
    (user.folder / "one.yaml").write_text("".join((user.folder / c).read_text() for c in configs))
    own = user.environment | {"ART_CONFIG": "one.yaml"}
    done = subprocess.run(
        [str(script), "-c", "art-own", "--yes", "--down"],
        cwd=user.folder,
        env=own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    quickstart = request.config.rootpath / "configs" / "quickstart.yaml"
    short = ("train.steps=3", "eval.every=3", "checkpoint.every=3", "sft.epochs=4")
    short += ("sft.num_demonstrations=200", "sft.batch_size=8")
    printed = user.art("run", str(quickstart), *short, "--on", "art-own")
    assert "step 3/3" in printed
    run = RunDir(user.folder / "runs" / "default" / "quickstart")
    assert run.state() == "done" and len(run.trajectory_steps("train")) == 3
    user.art("cluster", "down", "art-own")
