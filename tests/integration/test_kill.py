"""kill -9 at any moment, again and again: with --resume a run ends as if nothing had happened.

ART_KILLS says how often each run is killed (10 times, unless given).
"""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from short_run import CONFIG, Art, results

from art_cli.runs.checkpoint import read_progress
from art_cli.runs.maker import MARK
from art_cli.system.checksums import damage

NUM_KILLS = int(os.environ.get("ART_KILLS", "10"))  # of each run
MORE_SAVING = {"every: 3, episodes: 8": "every: 2, episodes: 4", "every: 2, keep": "every: 1, keep"}
AIMED_AT = (
    "checkpoints/.writing-*",
    "checkpoints/.writing-*/checksums.sha256",
    ".writing-base",
    "checkpoints/.removed-*",
    "*/.*.tmp",
    ".report.html.*.tmp",
)


@pytest.fixture(scope="module")
def all_weights(tmp_path_factory: pytest.TempPathFactory) -> Art:
    """A run that nobody kills; it makes everything: model, tokenizer, SFT of all weights."""
    config = CONFIG
    for old, new in MORE_SAVING.items():
        config = config.replace(old, new)
    return start(tmp_path_factory.mktemp("all-weights"), config)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, all_weights: Art) -> Art:
    """Another, that trains an adapter on what the first one made, with SFT of its own."""
    assert all_weights.wait() == 0, all_weights.output
    config = (all_weights.folder / "config.yaml").read_text()
    config = config.replace("base: tiny", f"base: {all_weights.run.base}")
    config = config.replace("adapter: null", "adapter: {rank: 4}").replace("muon", "adamw")
    config = "".join(line for line in config.splitlines(True) if "tiny: {" not in line)
    return start(tmp_path_factory.mktemp("adapter"), config)


@pytest.mark.parametrize("variant", ["all_weights", "adapter"])
def test_a_run_that_is_killed_again_and_again_ends_the_same(
    variant: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    whole: Art = request.getfixturevalue(variant)
    config, rng = (whole.folder / "config.yaml").read_text(), random.Random(0)
    assert whole.wait() == 0, whole.output
    expected, kills, finished, seconds = results(whole.run), 0, 0, 0.0
    assert sum("loss/grad_norm" in row for row in expected["metrics"]) >= 6  # it does train
    art, code = whole, None
    while kills < NUM_KILLS or code != 0:
        art, began = start(tmp_path / f"killed-{finished}", config), time.monotonic()
        if seconds and kills < NUM_KILLS:  # the first one says how long it takes
            strike(art, rng, seconds, aimed=kills % 2 == 1)
        code = art.wait()
        assert code in (0, -signal.SIGKILL), art.output
        kills += code != 0
        if code == 0:
            finished += 1
            seconds = seconds or time.monotonic() - began
            check(art, expected)
    assert "Traceback" not in art.output


def start(folder: Path, config: str) -> Art:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(config)
    return Art(folder, "config.yaml", "--resume")


def strike(art: Art, rng: random.Random, seconds: float, aimed: bool) -> None:
    """Kill it within so many seconds, or (aimed) while it writes or removes something."""
    end = time.monotonic() + rng.uniform(0.1, seconds)
    seen, skip = unfinished(art), rng.randrange(4)  # let so many chances pass
    while art.is_alive() and (aimed or time.monotonic() < end):
        if aimed and (new := unfinished(art) - seen):
            seen |= new
            skip -= 1
            if skip < 0:
                break
        time.sleep(rng.uniform(0, 0.003))
    art.signal(signal.SIGKILL)


def unfinished(art: Art) -> set[int]:
    """What is being written or removed now, by inode."""
    found = set()
    for path in (p for pattern in AIMED_AT for p in art.run.root.glob(pattern)):
        with suppress(FileNotFoundError):  # it is done by now
            found.add(path.stat().st_ino)
    return found


def check(art: Art, expected: dict[str, object]) -> None:
    """All that the run has written is what it would have been, and nothing else is there."""
    found = results(art.run)
    assert found["metrics"] == expected["metrics"]
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert list(art.run.root.rglob(".*")) == [art.run.root / MARK]
    assert art.run.report.read_text().endswith("</html>\n")
    for step in art.run.checkpoint_steps():
        folder = art.run.checkpoint(step)
        assert read_progress(folder).step == step
        assert damage(folder) is None
        if step > 1:
            assert torch.load(folder / "optimizer.pt", weights_only=True)["state"]
