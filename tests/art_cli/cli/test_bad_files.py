"""Files that are no files, never end or are far too much: a sentence and an exit code, no hang."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from short_run import CONFIG, Art

from art_cli.cli.inputs import read_dotenv
from art_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PREFLIGHT, EXIT_USAGE

LONG = "x" * 300
DEEP = "{a: " * 200 + "1" + "}" * 200
ENV = """
from art_cli import Env
class Mine(Env):
    @classmethod
    def demonstrations(cls, cfg, num):
        return [[{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]]
    async def start(self):
        return 'go'
"""
NO_FILE = "it is a pipe or a device, not a file"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def ended(folder: Path, command: str, *arguments: str) -> tuple[int, str]:
    """The exit code and all that was printed. A hang fails."""
    art = Art(folder, *arguments, command=command)
    code = art.wait()
    assert "Traceback" not in art.output
    return code, art.output


# ---------------------------------------------------------------- a command line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("validate", "config.yaml", f"name={LONG}"), "name: expected text of at most 100"),
        (("validate", "config.yaml", f"env.use={LONG}.py:Mine"), "there is no file"),
        (("validate", "config.yaml", f"env.use={LONG}:Mine"), "there is no module"),
        (("validate", "config.yaml", f"env.args.{LONG}=1"), "unknown key"),
        (
            ("validate", "config.yaml", "env.args." + ".".join("a" * 200) + "=1"),
            "more than 50 keys",
        ),
        (
            ("validate", "config.yaml", f"judge={{model: a/b, params: {DEEP}}}"),
            "more than 50 values",
        ),
        (("run", LONG), "File name too long"),
        (("eval", LONG), "is neither a run directory nor a config file"),
        (("deploy", LONG, "--to", "merged"), "holds no run"),
        (("envs", "check", f"{LONG}.py:Mine"), "there is no file"),
    ],
)
def test_what_is_too_long_or_too_deep_is_told(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, said = ended(folder, *arguments)
    assert code == EXIT_USAGE and words in said


def test_a_long_override_is_one_and_is_shown_short(folder: Path) -> None:
    (folder / "env.py").write_text(ENV)
    rubric = "be kind " * 100
    code, said = ended(
        folder, "validate", "config.yaml", "env.use=env.py:Mine", "sft=null",
        f"judge={{model: stand-in, rubric: {rubric}}}",
    )  # fmt: skip
    assert code == 0, said
    code, said = ended(folder, "validate", "config.yaml", f"nme={rubric}")
    assert code == EXIT_USAGE and len(said) < 600


# ---------------------------------------------------------------- a config


def bomb(file: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    file.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, f"cannot be read: {NO_FILE}"),
        (lambda f: f.symlink_to("/dev/zero"), f"cannot be read: {NO_FILE}"),
        (Path.mkdir, "is a folder"),
        (lambda f: f.write_bytes(os.urandom(1000) + b"\xff"), "is not text in UTF-8"),
        (lambda f: f.write_bytes("seed: 0".encode("utf-16")), "is not text in UTF-8"),
        (lambda f: f.write_bytes(b"seed: 0\x00"), "the character U+0000"),
        (lambda f: f.write_text("#" * (2 << 20)), "it is longer than 1 MiB"),
        (lambda f: f.write_text(f"a: {DEEP}"), "more than 50 values within each other"),
        (bomb, "more than 100000 values, each counted as often as an alias repeats it"),
    ],
)
def test_a_config_that_is_none_is_told(
    folder: Path, make: Callable[[Path], object], words: str
) -> None:
    make(folder / "bad.yaml")
    code, said = ended(folder, "run", "bad.yaml")
    assert code == EXIT_USAGE
    assert said.startswith("error: bad.yaml") and words in said


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize(
    ("override", "code", "words"),
    [
        (
            "judge={model: stand-in, rubric_file: named}",
            EXIT_PREFLIGHT,
            f"cannot read 'named': {NO_FILE}",
        ),
        ("sft.demonstrations=named", EXIT_USAGE, NO_FILE),
        ("env.use=named.py:Mine", EXIT_USAGE, "there is no file"),
    ],
)
def test_a_file_that_a_config_names_is_one(
    folder: Path, override: str, code: int, words: str, device: bool
) -> None:
    for name in ("named", "named.py"):
        if device:
            (folder / name).symlink_to("/dev/zero")
        else:
            os.mkfifo(folder / name)
    found, said = ended(folder, "run", "config.yaml", override)
    assert found == code and words in said


def test_a_value_of_a_dotenv_may_hold_a_character_that_ends_lines_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE", "of this test")
    monkeypatch.delenv("ONE")
    monkeypatch.delenv("c", raising=False)
    (tmp_path / ".env").write_text("ONE=a\u2028b\x85c=d\r\n", encoding="utf-8", newline="")
    read_dotenv(tmp_path / ".env")
    assert os.environ["ONE"] == "a\u2028b\x85c=d" and "c" not in os.environ


def test_a_dotenv_that_is_no_text_is_told(folder: Path) -> None:
    (folder / ".env").write_bytes(b"KEY=\xff")
    code, said = ended(folder, "validate", "config.yaml")
    assert code == EXIT_USAGE and "cannot read .env: 'utf-8' codec" in said


# ---------------------------------------------------------------- an env's file

COMMANDS = {
    "run": ("run", "config.yaml", "env.use=env.py:Mine"),
    "validate": ("validate", "config.yaml", "env.use=env.py:Mine"),
    "envs check": ("envs", "check", "env.py:Mine"),
    "eval": ("eval", "config.yaml", "env.use=env.py:Mine"),
}
TOO_LONG = "from art_cli.envs import registry; registry.IMPORT_SECONDS = 0.2; "
HANGS = (
    "import time\ntime.sleep(600)\n",
    "import threading\nthreading.Event().wait()\n",
    "while True:\n    pass\n",
    "import time\nwhile 1:\n    try: time.sleep(600)\n    except BaseException: pass\n",
)


def in_process(folder: Path, arguments: tuple[str, ...], before: str = "") -> tuple[int, str, str]:
    """`art` in a process of its own, whose outputs are told apart."""
    code = f"{before}from art_cli.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_import_that_never_ends_is_ended_with_its_line(
    folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "env.py").write_text(f"{HANGS[0]}{ENV}")
    code, _, said = in_process(folder, command, TOO_LONG)
    assert code == EXIT_USAGE
    assert "did not end within 0.2 s; it hangs at " in said
    assert "/env.py:2: time.sleep(600)" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "use"), [*((body, "env.py:Mine") for body in HANGS[1:]), (HANGS[1], "env:Mine")]
)
def test_whatever_it_hangs_at(folder: Path, body: str, use: str) -> None:
    (folder / "env.py").write_text(f"{body}{ENV}")
    code, _, said = in_process(folder, ("validate", "config.yaml", f"env.use={use}"), TOO_LONG)
    assert code == EXIT_USAGE and "/env.py:" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("import sys\nsys.exit(0)\n", EXIT_USAGE, "env.py:2: SystemExit: 0"),
        ("raise SystemExit('bye')\n", EXIT_USAGE, "env.py:1: SystemExit: bye"),
        ("raise GeneratorExit\n", EXIT_USAGE, "env.py:1: GeneratorExit"),
        ("raise KeyboardInterrupt\n", EXIT_INTERRUPTED, "env.py:1: KeyboardInterrupt"),
        ("import no_such_thing\n", EXIT_USAGE, "env.py:1: ModuleNotFoundError"),
    ],
)
def test_an_import_that_leaves_is_told_with_its_line(
    folder: Path, command: tuple[str, ...], body: str, code: int, words: str
) -> None:
    (folder / "env.py").write_text(f"{body}{ENV}")
    found, said = ended(folder, *command)
    assert found == code and words in said


def test_what_an_import_prints_is_not_in_the_json(folder: Path) -> None:
    (folder / "env.py").write_text(f"print('hello from the env')\n{ENV}")
    overrides = ("env.use=env.py:Mine", "sft=null")
    code, out, said = in_process(folder, ("validate", "config.yaml", *overrides, "--json"))
    assert code == EXIT_USAGE or json.loads(out)["valid"] is True
    assert json.loads(out).keys() and "hello from the env" in said


# ---------------------------------------------------------------- a disk that is full before


def mount(folder: Path, size: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")


@pytest.mark.slow
@pytest.mark.parametrize("pages", (1, 2, 3, 4, 6, 8))
def test_a_disk_that_is_full_at_the_first_writes_is_told(folder: Path, pages: int) -> None:
    runs = folder / "runs"
    runs.mkdir()
    mount(runs, f"{4 * pages}k")
    try:
        code, said = ended(folder, "run", "config.yaml")
        assert code in (EXIT_FAILED, EXIT_PREFLIGHT)
        assert "No space left on device" in said
    finally:
        subprocess.run(["umount", str(runs)], check=True)
