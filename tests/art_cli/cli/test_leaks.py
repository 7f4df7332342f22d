"""A run whose env leaks its key in every way: no file, no tracker and no terminal has it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from loopback_otlp import LoopbackOtlp
from short_run import CONFIG

from art_cli import keys
from art_cli.cli.main import main
from art_cli.runs.directory import RunDir

pytest.importorskip("opentelemetry.exporter.otlp", reason="pip install 'art-cli[otlp]'")
pytest.importorskip("wandb", reason="pip install 'art-cli[wandb]'")

SECRET = "Zq7/pXw+K9v=Rt2m"
OWN = "tg-Qw8rTy2uIo4pAs6d"  # a key of art's own, which the env finds in the environment
ENV = """
import base64, os, sys, warnings
from dataclasses import dataclass
from urllib.parse import quote
import art_cli as art

@dataclass
class Settings:
    password: str = ""

def leaks(key):
    raw = key.encode()
    yield from (key, key.upper(), key.lower(), quote(key, safe=""), repr({"key": key}))
    yield from (base64.b64encode(b"x" * n + raw + b"yz").decode() for n in range(3))
    yield base64.urlsafe_b64encode(b"user:" + raw).decode()

class Mine(art.Env):
    Config = Settings

    @property
    def leak(self):
        return " ".join([*leaks(self.cfg.password), *leaks(os.environ["TOGETHER_API_KEY"])])

    async def start(self):
        print("printed", self.leak, flush=True)
        print("at stderr", self.leak, file=sys.stderr, flush=True)
        sys.stderr.write(self.cfg.password[:7])
        sys.stderr.flush()
        sys.stderr.write(self.cfg.password[7:] + chr(10))
        warnings.warn(self.leak)
        return "hello " + self.leak

    async def reply(self, text):
        if self.scenario.seed == 1:
            raise ConnectionError(f"403 for {self.leak}")
        if self.scenario.seed == 2 and len(text) % 2:
            return 5 * [self.leak]
        return art.Done() if self.scenario.seed else f"no: {self.leak}"

    @art.tool()
    async def look(self) -> str:
        "Look."
        return self.leak

    def judge_context(self):
        return self.leak

    async def score(self, trajectory):
        self.metrics[f"m {self.cfg.password}"] = 1.0
        return len(str(trajectory.messages)) % 7 / 7

    @classmethod
    def scenarios(cls, cfg, split):
        return [
            art.Scenario(id=f"{split}-{n}-{cfg.password}", split=split, seed=n,
                data={"kind": cfg.password, cfg.password: 1})
            for n in range(4)
        ]

    @classmethod
    def demonstrations(cls, cfg, num):
        return [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]
"""
Art = Callable[..., tuple[int, str]]


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Art:
    """Run `art` in this process, in a folder with config.yaml -> its exit code and all it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ART_X", SECRET)
    monkeypatch.setenv("TOGETHER_API_KEY", OWN)
    Path("config.yaml").write_text(CONFIG)
    Path("env.py").write_text(ENV)

    def run(*arguments: str) -> tuple[int, str]:
        # As in a process of its own.
        monkeypatch.setattr("art_cli.terminal.text._names", {})
        monkeypatch.setattr("art_cli.keys._given", {})
        monkeypatch.setattr("art_cli.keys._found", {})
        monkeypatch.setattr("art_cli.keys._known", keys._Forms({}, 0))
        monkeypatch.setattr(sys, "argv", ["art", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, "".join(capfd.readouterr())

    return run


def forms(key: str) -> Iterator[str]:
    """The texts that a key must not stand in, in lower case."""
    yield from (key, quote(key, safe=""), quote(key), json.dumps(key)[1:-1])
    for num in range(3):
        encoded = base64.b64encode(b"\0" * num + key.encode() + b"\0" * 3).decode()
        whole = encoded[-(-8 * num // 6) : 8 * (num + len(key)) // 6]
        yield from (whole, whole.translate(str.maketrans("+/", "-_")))


def texts_in(content: bytes) -> Iterator[bytes]:
    """The bytes of a file, and what is compressed in it, also as base64 in a page."""
    yield content
    for begin in (m.start() for m in re.finditer(rb"\x1f\x8b\x08", content)):
        unzip = zlib.decompressobj(31)
        try:
            yield from texts_in(unzip.decompress(content[begin:]))
        except zlib.error:
            continue
    for packed in re.findall(rb"H4sI[A-Za-z0-9+/=]{40,}", content):
        yield from texts_in(gzip.decompress(base64.b64decode(packed)))


def leaked(content: bytes) -> list[str]:
    """The forms of the two keys that bytes hold."""
    wanted = [form.lower().encode() for key in (SECRET, OWN) for form in forms(key)]
    return sorted({f.decode() for t in texts_in(content) for f in wanted if f in t.lower()})


def assert_no_file_leaks(folder: Path, allowed: tuple[str, ...] = ()) -> None:
    """Read every byte below a folder."""
    for file in (p for p in folder.rglob("*") if p.is_file() and p.name not in allowed):
        assert not leaked(file.read_bytes()), file
        assert not leaked(str(file).encode()), file


def test_the_search_of_these_tests_finds_what_is_packed() -> None:
    packed = base64.b64encode(gzip.compress(SECRET.encode() + b" " * 200))
    assert leaked(b'{"a": "' + packed + b'"}') and leaked(gzip.compress(SECRET.upper().encode()))
    assert leaked(base64.b64encode(b"user:" + OWN.encode())) and not leaked(b"nothing")


@pytest.mark.slow
def test_a_key_that_an_env_leaks_in_every_way_is_masked_wherever_it_is_written(art: Art) -> None:
    args = "{password: '${oc.env:ART_X}'}"
    env = f"{{use: 'env.py:Mine', python: '{sys.executable}', args: {args}}}"
    small = ("eval={every: 1, episodes: 4}", "train.steps=2", "sft.epochs=1")
    more = ("train.scenarios_per_step=4", "train.curriculum=signal", "checkpoint.every=1")
    with LoopbackOtlp() as collector:
        to = f'track={{wandb: {{mode: offline}}, otlp: {{endpoint: "{collector.url}/v1/traces"}}, '
        code, said = art(
            "run", "config.yaml", f"env={env}", *small, *more, to + "tensorboard: true}"
        )
        assert code == 0, said
        assert not leaked(said.encode())
        assert collector.spans and not leaked(str(collector.spans).encode())
    run = Path("runs/test/short")
    for command in (
        ("eval", str(run), "--episodes", "4", "--html", "evaluation.html"),
        ("show", str(run), "1", "0", "--full"),
        ("show", str(run), "1", "0", "--json"),
        ("view", str(run), "--html", "page.html"),
        ("why", str(run)),
        ("logs", str(run), "env"),
        ("replay", str(run), "1", "0"),
    ):
        code, said = art(*command)
        assert not leaked(said.encode()), command
    text = gzip.decompress((run / "trajectories/train-000001.jsonl.gz").read_bytes()).decode()
    assert "${oc.env:ART_X}" in text and "${oc.env:TOGETHER_API_KEY}" in text
    rows = [json.loads(line) for line in text.splitlines()]
    assert all(row["sequences"][0]["ids"] for row in rows if not row["error"])
    assert "printed ${oc.env:ART_X}" in (run / "logs/env.log").read_text()
    assert "ART_X" in (run / "metrics.jsonl").read_text()
    assert_no_file_leaks(Path(), allowed=("env.py",))


@pytest.mark.slow
def test_masking_changes_nothing_that_is_trained(art: Art) -> None:
    small = ("eval=null", "train.steps=2", "sft.epochs=1", "train.scenarios_per_step=4")
    found = []
    for name, password in (("masked", "${oc.env:ART_X}"), ("plain", SECRET)):
        # What stands in the config itself is no key.
        args = f"{{password: '{password}'}}"
        env = f"{{use: 'env.py:Mine', python: '{sys.executable}', args: {args}}}"
        code, said = art("run", "config.yaml", f"env={env}", f"name={name}", *small)
        assert code == 0, said
        run = RunDir(Path("runs/test") / name)
        rows = run.read_trajectories(2, "train")
        assert (SECRET in str(rows)) == (name == "plain")
        learned = [(row["sequences"], row["reward"], row["advantage"]) for row in rows]
        found.append((learned, (run.checkpoint(2) / "model.safetensors").read_bytes()))
    assert found[0] == found[1] and any(advantage for _, _, advantage in found[0][0])
