"""Small real things that many tests share: a tiny model, its tokenizer, hand-made trajectories."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
import torch

from art_cli.config.sections.model import AdapterConfig, TinyConfig
from art_cli.models import tiny
from art_cli.models.policy import Policy

TEXTS = [
    'look up <tool_call>{"name": "look", "arguments": {"key": "a"}}</tool_call> result is seven',
    "the value of red is 7 and the value of blue is 9, thank you",
]

MakePolicy = Callable[..., Policy]
SLOW_FOLDERS = {"integration", "envs", "docs"}
SLOW_SECONDS = 1200  # the time limit of a slow test that names none; pyproject.toml has the others'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow more time to tests that are marked slow, and to those of some folders.

    The first test that plays at a desk makes the desk's data: half a minute on a busy machine.
    """
    for item in items:
        is_slow = item.get_closest_marker("slow") or SLOW_FOLDERS & {*item.path.parts}
        if is_slow and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests keep for later runs is not the user's, nor is what they find. Workers share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    (folder / "cache").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


@pytest.fixture(autouse=True, scope="session")
def _as_wide_as_it_takes() -> Iterator[None]:
    """A pipe is not wrapped. Workers of xdist inherit a width that readline has set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(autouse=True)
def _nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test takes from the environment is not hidden in another."""
    monkeypatch.setattr("art_cli.terminal.text._names", {})


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Ctrl-C is Python's own, whoever started the tests and whatever ran in this process before."""
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def hidden_size() -> int:
    """Of the policies that `make_policy` makes."""
    return 32


@pytest.fixture
def make_policy(hidden_size: int) -> MakePolicy:
    """Tiny Qwen3 policies: the same weights for the same seed, with an adapter if a rank is given.

    The adapter's B is random, not zero: a fresh one would hide that it is in use.
    """

    def make(rank: int = 0, seed: int = 0, texts: list[str] = TEXTS) -> Policy:
        model, tokenizer = tiny.make(
            TinyConfig(hidden_size=hidden_size, vocab_size=320), texts, seed
        )
        policy = Policy(model, tokenizer)
        if rank:
            policy.add_adapter(AdapterConfig(rank=rank, alpha=2 * rank), seed)
            torch.manual_seed(seed + 1)
            for p in policy.trainable:
                p.data += 0.1 * torch.randn_like(p)
        return policy

    return make
