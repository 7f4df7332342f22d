"""Names in a config to env classes: one match, or what was tried and what there is."""

import sys
from pathlib import Path

import pytest

from art_cli.envs.registry import describe, env_class, env_names
from art_cli.errors import UsageError
from art_envs.order_desk import OrderDesk

ENV = "from art_cli import Env\nclass Mine(Env):\n    '''My task.'''\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def refusal(use: str) -> str:
    with pytest.raises(UsageError) as raised:
        env_class(use)
    return str(raised.value)


def test_registered_envs_are_found_by_name() -> None:
    assert env_class("order_desk") is OrderDesk
    assert {"order_desk", "2048", "tic_tac_toe"} <= env_names().keys()


def test_every_registered_env_loads_and_says_what_it_is() -> None:
    for name in env_names():
        assert describe(env_class(name)).endswith(".")


def test_a_class_of_a_module_is_found() -> None:
    assert env_class("art_envs.order_desk:OrderDesk") is OrderDesk


def test_a_module_beside_the_config_is_found(folder: Path) -> None:
    (folder / "beside_the_config.py").write_text(ENV)
    assert describe(env_class("beside_the_config:Mine")) == "My task."


def test_a_file_is_loaded_once_until_it_changes(folder: Path) -> None:
    file = folder / "env.py"
    file.write_text(ENV)
    first = env_class("env.py:Mine")
    assert env_class(f"{file}:Mine") is first
    file.write_text(ENV.replace("My", "Another"))
    assert describe(env_class("env.py:Mine")) == "Another task."


def test_a_file_imports_what_lies_beside_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "words_of_mine.py").write_text("WORDS = ['a']\n")
    (folder / "sub" / "env.py").write_text(f"from words_of_mine import WORDS\n{ENV}")
    assert env_class("sub/env.py:Mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("oder_desk", "Did you mean 'order_desk'? Registered are 2048, airline, code_edit"),
        ("zzz", "no env is registered as 'zzz'. Registered are 2048"),
        ("env.py", "or give package.module:Class or path/to/file.py:Class"),
        ("env.py:Yours", "env.py has no 'Yours'; it has Mine"),
        ("env.py:Env", "Env is not a subclass of art_cli.Env"),
        ("env.py:WORD", "WORD is not a subclass of art_cli.Env"),
        ("env.py:NoDataclass", "NoDataclass.Config must be a dataclass; put @dataclass above it"),
        (
            "nv.py:Mine",
            "no file 'nv.py' (paths are relative to the folder that art is started in",
        ),
        ("no_such.module:Mine", "there is no module 'no_such.module', neither installed nor under"),
        ("art_envs.chess:Mine", "there is no module 'art_envs.chess'"),
        ("needs.py:Mine", "needs.py:1: ModuleNotFoundError: No module named 'numpyy'"),
        ("needs:Mine", "needs imports 'numpyy', which is not installed"),
        ("broken.py:Mine", "broken.py:2: SyntaxError: "),
        ("broken:Mine", "broken.py:2: SyntaxError: "),
        ("fails.py:Mine", "fails.py:2: ZeroDivisionError: division by zero"),
        ("leaves.py:Mine", "leaves.py:1: SystemExit: 0"),
    ],
)
def test_what_cannot_be_used_is_told(folder: Path, use: str, words: str) -> None:
    more = "    class Config: pass\n"
    (folder / "env.py").write_text(f"{ENV}WORD = 1\nclass NoDataclass(Mine):\n{more}")
    (folder / "needs.py").write_text("import numpyy\n")
    (folder / "broken.py").write_text("x = 1\nclass (:\n")
    (folder / "fails.py").write_text("import math\nint(math.pi) / 0\n")
    (folder / "leaves.py").write_text("raise SystemExit(0)\n")
    message = refusal(use)
    assert words in message and repr(use) in message
