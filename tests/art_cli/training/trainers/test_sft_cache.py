"""The same SFT is made once, and one that was stopped goes on, to the same bits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from short_run import CONFIG
from torch import Tensor
from typer.testing import CliRunner

from art_cli.chat.render import Renderer
from art_cli.cli.main import app
from art_cli.config.sections.sft import SFTConfig
from art_cli.errors import UsageError
from art_cli.models.policy import Policy
from art_cli.runs.directory import RunDir
from art_cli.training.trainers import sft, sft_cache
from art_cli.training.trainers.budget import TokenBudget
from art_cli.types import Message

Warm = Callable[..., tuple[list[Tensor], int, list[str]]]


def demonstration(number: int) -> list[Message]:
    return [
        {"role": "user", "content": f"the value of red is {number}"},
        {"role": "assistant", "content": f"red is {number}, thank you"},
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "art" / "sft"


@pytest.fixture
def warm(folder: Path, make_policy: Callable[..., Policy]) -> Warm:
    """Warm a policy up; return its weights, how many steps were made, and what was said."""

    def warm(
        stop_after: int = 99,
        last: int = 9,
        rank: int = 0,
        seed: int = 0,
        weights: int = 0,
        learning_rate: float = 1e-2,
        max_length: int = 2000,
    ) -> tuple[list[Tensor], int, list[str]]:
        policy, said, done = make_policy(rank=rank, seed=weights), [], 0
        renderer = Renderer(policy.tokenizer, None, policy.eos_token_ids)
        cfg = SFTConfig(
            epochs=2,
            batch_size=2,
            learning_rate=learning_rate,
            optimizer="adamw" if rank else "muon",
        )
        demonstrations = [demonstration(n) for n in (*range(5), last)]
        budget = TokenBudget(4000, said.append)
        steps = sft.fine_tune(
            policy, renderer, demonstrations, cfg, seed, budget, max_length, said.append
        )
        for done, _ in enumerate(steps, 1):
            if done == stop_after:
                steps.close()
        return [p.detach().clone() for p in policy.trainable], done, said

    return warm


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("rank", [0, 4])
def test_one_that_was_stopped_goes_on_and_the_same_is_made_once(warm: Warm, rank: int) -> None:
    _, num, said = warm(stop_after=2, rank=rank)
    assert (num, said) == (2, [])
    resumed, num, said = warm(rank=rank)
    assert (num, said) == (4, ["SFT goes on after step 2 of 6, where it was stopped"])
    taken, num, said = warm(rank=rank)
    assert num == 0 and "loaded from the cache" in said[0]
    file = Path(said[0].rpartition("rm ")[2])
    file.unlink()
    whole, num, said = warm(rank=rank)
    assert (num, said) == (6, [])
    assert same(whole, resumed) and same(whole, taken)


def test_demonstrations_that_do_not_fit_are_counted_and_none_at_all_is_refused(
    warm: Warm, make_policy: Callable[..., Policy]
) -> None:
    policy = make_policy()
    renderer = Renderer(policy.tokenizer, None, policy.eos_token_ids)
    lengths = [
        len(sequence.ids)
        for number in (*range(5), 10**9)
        for sequence in sft.demonstration(renderer, demonstration(number))
    ]
    short, long = min(lengths), max(lengths)
    _, num, said = warm(last=10**9, max_length=long - 1)
    assert num == 6  # two passes over five, two at a time
    assert said == [
        "SFT leaves out 1 of 6 demonstrations, which are longer than "
        f"engine.max_model_len, {long - 1} tokens; the longest has {long}"
    ]
    with pytest.raises(UsageError, match=rf"{short - 1} tokens; the shortest of 6 has {short}, "):
        warm(last=10**9, max_length=short - 1)


def test_one_that_was_killed_goes_on_from_what_was_kept_last(
    warm: Warm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _, _ = warm()
    [file] = folder.iterdir()
    file.unlink()
    monkeypatch.setattr(sft, "KEEP_EVERY", -1.0)
    save, states = sft_cache.CachedSft.save, []
    monkeypatch.setattr(
        sft_cache.CachedSft,
        "save",
        lambda self, state: (states.append(state.step), state.step < 4 and save(self, state)),
    )
    warm()
    assert states == [1, 2, 3, 4, 5, 6]
    resumed, num, _ = warm()
    assert num == 3 and same(whole, resumed)


def test_a_damaged_file_is_noticed_and_the_warm_up_made_anew(warm: Warm, folder: Path) -> None:
    whole, _, _ = warm()
    [file] = folder.iterdir()
    content = bytearray(file.read_bytes())
    for damaged in (content[:-1], content[:100], b"", content[:500] + b"\x00" + content[501:]):
        file.write_bytes(damaged)
        again, num, said = warm()
        assert (num, said) == (6, []) and same(whole, again)
    assert warm()[1] == 0


def test_all_that_it_depends_on_makes_another(warm: Warm, folder: Path) -> None:
    changes = [{}, {"last": 8}, {"rank": 4}, {"seed": 1}, {"weights": 1}, {"learning_rate": 1e-3}]
    for num, change in enumerate(changes, 1):
        assert warm(**change)[1] == 6
        assert len(list(folder.iterdir())) == num


def test_a_change_of_what_computes_makes_another(
    warm: Warm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm()
    monkeypatch.setattr(sft_cache, "version", lambda name: "0.1")
    assert warm()[1] == 6
    monkeypatch.setattr(sft_cache, "COMPUTING", ("models",))
    assert warm()[1] == 6


def test_the_folder_has_a_bound_and_a_disk_that_refuses_costs_nothing_else(
    warm: Warm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm(seed=0)
    [first] = folder.iterdir()
    warm(seed=1)
    os.utime(first, (1, 1))
    left_by_a_killed_run = folder / ".0.tmp"
    left_by_a_killed_run.touch()
    os.utime(left_by_a_killed_run, (1, 1))
    monkeypatch.setattr(sft_cache, "MOST", int(2.5 * first.stat().st_size))
    warm(seed=2)
    assert len(list(folder.iterdir())) == 2 and not first.exists()
    monkeypatch.setattr(sft_cache, "MOST", 10)
    assert warm(seed=3)[1] == 6 and len(list(folder.iterdir())) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(next(folder.iterdir())))
    assert warm(seed=1)[1] == 6


@pytest.mark.slow
def test_a_run_of_another_name_begins_at_once_and_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)

    def run(name: str, *words: str) -> tuple[str, bytes, list[dict[str, float]]]:
        few = ("train.steps=2", "train.scenarios_per_step=2", "eval.episodes=2")
        result = CliRunner().invoke(app, ["run", "config.yaml", f"name={name}", *few, *words])
        assert result.exit_code == 0, (result.output, result.exception)
        found = RunDir(Path("runs/test", name))
        clocks = ("time/", "throughput/", "memory/")
        rows = [
            {k: v for k, v in row.items() if not k.startswith(clocks)}
            for row in found.read_metrics()
        ]
        return result.output, (found.checkpoint(2) / "model.safetensors").read_bytes(), rows

    made, *first = run("first")
    taken, *second = run("second")
    assert "warming up" in made and "loaded from the cache" not in made
    assert "warming up" not in taken and "loaded from the cache" in taken
    assert first == second
    changed, *_ = run("third", "sft.num_demonstrations=199")
    assert "warming up" in changed
