"""What the adapters share: a library that may be missing, its randomness, what may be evaluated."""

import random
import threading

import numpy as np
import pytest

from art_cli.config.load import load_env
from art_cli.envs.registry import env_class
from art_cli.errors import ConfigError
from art_envs.adapters.evaluated import is_plain
from art_envs.adapters.library import IsolatedRandomness, library

HOME = "art_envs.adapters"
USES = {
    "reasoning-gym": (f"{HOME}.reasoning_gym_env:ReasoningGym", "dataset=gcd", "reasoning_gym"),
    "gymnasium": (f"{HOME}.gymnasium_env:Gymnasium", "id=Taxi-v4", "gymnasium"),
    "textarena": (f"{HOME}.textarena_env:TextArena", "id=TicTacToe-v0", "textarena"),
    "inspect-ai": (f"{HOME}.inspect_env:Inspect", "task=x", "inspect_ai"),
    "verifiers": (f"{HOME}.verifiers_env:Verifiers", "id=x", "verifiers"),
    "tau2": (f"{HOME}.tau2_env:Tau2", "domain=retail", "tau2"),
}
OF_THEIR_OWN = ("inspect-ai", "verifiers")  # environments; there is no extra


@pytest.mark.parametrize("extra", USES)
def test_a_missing_package_is_one_sentence_with_the_command(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use, setting, module = USES[extra]
    env = env_class(use)  # which needs no library
    real = __import__("importlib").import_module

    def missing(name: str) -> object:
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return real(name)

    monkeypatch.setattr("art_envs.adapters.library.import_module", missing)
    for cached in ("_check", "_dataset", "_num_players", "tasks_of", "_loaded"):
        if hasattr(found := __import__(env.__module__, fromlist=["x"]), cached):
            getattr(found, cached).cache_clear()
    with pytest.raises(ConfigError) as e:
        load_env(use, [setting], lambda use: env_class(use).Config)
    how = (
        f"pip install 'art-cli[{extra}]'"
        if extra not in OF_THEIR_OWN
        else "give it an environment of"
    )
    assert f"the package {extra} is not installed: {how}" in str(e.value)


def test_what_a_library_itself_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="the package nothing is not installed"):
        library("nothing.at.all", "nothing")


def test_a_library_draws_from_its_own_numbers_and_leaves_no_trace() -> None:
    one, other = IsolatedRandomness(1), IsolatedRandomness(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    drawn = []
    for _ in range(3):  # what one draws does not move the other
        with one.lent():
            drawn.append((random.random(), np.random.random()))
        with IsolatedRandomness(2).lent():
            random.random()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    with other.lent():
        assert [(random.random(), np.random.random()) for _ in range(3)] == drawn


def test_one_library_draws_at_a_time() -> None:
    seen = []

    def draw(seed: int) -> None:
        numbers = IsolatedRandomness(seed)
        for _ in range(20):
            with numbers.lent():
                seen.append((seed, random.random()))

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        rng = random.Random(seed)
        assert [n for s, n in seen if s == seed] == [rng.random() for _ in range(20)]


PLAIN = [
    *("7", "-7", "94*2 - 39 + 48 - 25", "3*(10 + 7 - 9)", "[[1, 2], [3, 4]]", "['A', 'B']", "True"),
    *("5264*y**4 - 9776*y**3 + 8216", "-cos(4*x + 10)**5/5 + C", "x**(3/2)", "exp(-x**2)", "2**x"),
    *("sqrt(2*x + 1)*log(x)", "(x + 1)**8", "1.5e3", "None", "()"),
]
NOT_PLAIN = [
    *("__import__('os').getpid()", "().__class__", "open('x')", "print(1)", "[i for i in 'ab']"),
    *("9**9**9**9", "9**65", "(9**9)**9", "exp(exp(exp(x)))", "2**(8*9)", "9**-99", "10**10**10"),
    *("'ab'*9", "'a' + 'b'", "sin('os')", "lambda: 1", "x if x else y", "x.y", "x[0]", "{1: 2}"),
    *("1" * 31, "x" * 20_000, "1 and 2", "f'{x}'", "factorial(9)", "N(1)", "1 < 2"),
    *("-" * 3000 + "1", "2**(1/0.001)", "sin(x, evaluate=False)"),
]


@pytest.mark.parametrize("text", PLAIN)
def test_literals_and_arithmetic_may_be_evaluated(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_nothing_else_may(text: str) -> None:
    assert not is_plain(text)


@pytest.mark.parametrize("text", ["1 2 3", "5!", "_ _ Q", "", "a, b = 1", "9" * 5000])
def test_what_is_no_expression_is_told_apart(text: str) -> None:
    with pytest.raises(SyntaxError):
        is_plain(text)
