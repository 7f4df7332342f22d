"""`art validate` and the memory of a GPU; `art run` before it loads anything."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from qwen_7b import QWEN_7B
from short_run import COLOURS
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.errors import EXIT_PREFLIGHT, EXIT_USAGE, PreflightError
from art_cli.preflight.memory.gpus import present

CONFIG = f"""
env: {{use: "{COLOURS}:Opposites"}}
model: {{base: big}}
engine:
  max_model_len: 16384
train:
  steps: 8
"""
Art = Callable[..., Result]


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Art:
    """Run `art` in a folder with a config whose base is a folder with nothing but dimensions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    machine(0)
    Path("config.yaml").write_text(CONFIG)
    Path("big").mkdir()
    Path("big/config.json").write_text(json.dumps(QWEN_7B))
    return lambda *words: CliRunner().invoke(app, list(words))


def machine(mib: int, num: int = 1) -> None:
    """An nvidia-smi in PATH that shows so many cards; none of 0 MiB."""
    rows = [f"{n}, GPU-{n}, NVIDIA Card, {mib}, {mib - 500}, 580.65.06" for n in range(num)]
    said = "print({!r})".format("\n".join(rows)) if mib else "raise SystemExit(9)"
    smi = Path("nvidia-smi")
    smi.write_text(f"#!{sys.executable}\n{said}\n")
    smi.chmod(0o755)


def memory(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)["memory"]


KEPT = ["train.gradient_checkpointing=off"]  # all layers' states are kept for the backward


def test_what_a_run_takes_is_shown_part_by_part_and_the_line_to_change_named(art: Art) -> None:
    result = art("validate", "config.yaml", *KEPT, "--gpu", "H100")
    assert result.exit_code == 0, result.output
    for words in ("GiB at most on H100, 79.6 GiB", "7.62B in bfloat16", "rank 16", "KV cache"):
        assert words in result.stdout
    assert "the rollout may run out" in result.stdout and "the update may run out" in result.stdout
    assert "config.yaml:5  engine.max_model_len: " in result.stdout
    assert "(now 16384)" in result.stdout and "ok: default/config" in result.stdout


def test_what_is_advised_fits_once_it_is_done(art: Art) -> None:
    found = memory(art("validate", "config.yaml", *KEPT, "--gpu", "80GB", "--json"))
    assert (found["rollout"], found["update"]) == ("may run out", "may run out")
    done = [f"{c['path']}={c['to']}" for c in (a["changes"][0] for a in found["advice"])]
    found = memory(art("validate", "config.yaml", *KEPT, *done, "--gpu", "80GB", "--json"))
    assert (found["rollout"], found["update"], found["advice"]) == ("fits", "fits", [])


def test_what_certainly_does_not_fit_is_not_ready(art: Art) -> None:
    result = art("validate", "config.yaml", "--gpu", "T4")
    assert result.exit_code == EXIT_PREFLIGHT
    assert "does not fit: 15." in result.stdout and "model.quantize: 8bit" in result.stdout


QWEN_3B = QWEN_7B | {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36}
QWEN_3B |= {"num_attention_heads": 16, "num_key_value_heads": 2, "tie_word_embeddings": True}
QWEN_32B = QWEN_7B | {"hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64}
QWEN_32B |= {"num_attention_heads": 40, "num_key_value_heads": 8}
QWEN3_8B = QWEN_7B | {"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288}
QWEN3_8B |= {"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8}


@pytest.mark.parametrize(
    ("name", "base", "cards"),
    [
        ("gpu-24gb", QWEN_3B, ("L4", "RTX4090", "A10G")),
        pytest.param(
            *("gpu-80gb", QWEN3_8B | {"head_dim": 128}, ("A100", "H100")), marks=pytest.mark.slow
        ),
        pytest.param("gpu-8x80gb", QWEN_32B, ("A100", "H100"), marks=pytest.mark.slow),
        pytest.param("cluster-2x8x80gb", QWEN_32B, ("A100", "H100"), marks=pytest.mark.slow),
    ],
)
def test_the_configs_for_a_gpu_fit_on_it(
    art: Art,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    base: dict[str, Any],
    cards: tuple[str, ...],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-judge")
    Path("big/config.json").write_text(json.dumps(base))
    config = str(Path(__file__).parents[3] / "configs" / f"{name}.yaml")
    for card in cards:
        found = memory(art("validate", config, "model.base=big", "--gpu", card, "--json"))
        assert (found["rollout"], found["update"]) == ("fits", "fits"), (card, found["advice"])


def test_the_gpu_that_is_here_is_what_counts(art: Art) -> None:
    assert memory(art("validate", "config.yaml", "--json"))["gpu"] is None
    machine(81559)
    assert memory(art("validate", "config.yaml", "--json"))["gpu"]["bytes"] == 81559 * 2**20


def test_hidden_gpus_are_not_there(art: Art, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(81559, num=2)
    assert len(present()) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len(present()) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert present() == []


def test_a_size_that_is_not_known_is_no_mistake(art: Art, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = art("validate", "config.yaml", "model.base=some/model")
    assert result.exit_code == 0
    assert "memory: unknown. some/model is not in the cache" in result.stdout
    assert "some/model was not looked at: some/model is not in the cache" in result.stdout


def test_a_card_that_is_not_known_is_named(art: Art) -> None:
    result = art("validate", "config.yaml", "--gpu", "H1000", "--json")
    assert result.exit_code == EXIT_USAGE
    (problem,) = json.loads(result.stdout)["problems"]
    assert "--gpu H1000: expected a size such as 24GB, or one of T4" in problem


def test_a_run_that_cannot_fit_is_refused_before_anything_is_loaded(art: Art) -> None:
    machine(15360)
    result = art("run", "config.yaml")
    assert isinstance(result.exception, PreflightError)
    assert "big does not fit on the NVIDIA Card" in str(result.exception)
    assert not Path("runs").exists()


def test_a_run_that_may_run_out_is_begun_with_a_warning(art: Art) -> None:
    machine(81559)
    result = art("run", "config.yaml")
    assert "warning: the rollout may run out: " in " ".join(result.output.split())
    assert "model.base: 'big' has no chat template" in str(result.exception)


FEW = """
import art_cli as art
class Few(art.Env):
    num_scenarios = {"train": 4, "val": 3, "test": 3}
    async def start(self): return "hi"
    async def score(self, trajectory): return 1.0
"""


def test_numbers_beyond_the_scenarios_of_an_env_are_told_before_anything_is_loaded(
    art: Art,
) -> None:
    Path("few.py").write_text(FEW)
    result = art("validate", "config.yaml", "env.use=few.py:Few", "train.scenarios_per_step=5")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "train.scenarios_per_step is 5, but the env has 4 train scenarios" in said
    assert "eval.episodes is 64, but the env has 3 val scenarios: each is played once" in said
    result = art("validate", "config.yaml", "eval.episodes=8")
    assert result.exit_code == 0 and "scenarios" not in result.output


@pytest.mark.parametrize("change", ["model.base=tiny", "sft={}"])
def test_demonstrations_that_an_env_has_not_are_asked_for_at_once(art: Art, change: str) -> None:
    Path("few.py").write_text(FEW)
    result = art("validate", "config.yaml", "env.use=few.py:Few", change)
    said = str(result.exception)
    assert "Few has no demonstrations" in said and "override demonstrations(), or give" in said


def test_demonstrations_may_be_a_static_method(art: Art) -> None:
    own = "    @staticmethod\n    def demonstrations(cfg, num): return [[]]\n"
    Path("few.py").write_text(FEW + own)
    result = art("validate", "config.yaml", "env.use=few.py:Few", "sft={}", "eval=null")
    assert result.exit_code == 0, (result.output, result.exception)
