"""`art certify`: a base's architecture is tried without its weights."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bases import write_base
from published import PUBLISHED
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.errors import EXIT_FAILED, PreflightError, UsageError
from art_cli.models.policy import Policy
from art_cli.preflight.certified import is_certified, record_file
from art_cli.preflight.certify.specimen import Specimen

Art = Callable[..., Result]
COMPARED = ("sequences", "tree", "gradients", "engine", "saved", "PEFT", "merged")
SEEN = ("tokenizer", "stop tokens", "tools", "tool call", "mask", "forks")


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Art:
    """Run `art` in an empty folder, with a cache of its own; the hub is dead."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    return lambda *words: CliRunner().invoke(app, list(words))


def trials(result: Result) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(result.stdout)["trials"]}


@pytest.mark.parametrize("name", ["qwen2", "qwen3_moe", "llama:tied"])
def test_a_base_that_is_computed_as_transformers_does_is_certified(art: Art, name: str) -> None:
    base = write_base(Path("base"), name)
    result = art("certify", str(base), "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    found = trials(result)
    assert {row["status"] for row in found.values()} == {"passed"}
    assert set(found) == {"architecture", "loading", "read", "adapter", *COMPARED, *SEEN}
    assert all(found[name]["difference"] < 1e-4 for name in COMPARED)
    assert "LoRA on" in found["adapter"]["what"] and "4 calls there and back" in str(found)
    vllm = json.loads(result.stdout)["vllm"]
    assert vllm.startswith(f"vllm serve --model {base} ") and "--max-lora-rank 16" in vllm
    assert is_certified(json.loads((base / "config.json").read_text()))


def test_a_person_reads_a_table_and_the_verdict(art: Art) -> None:
    write_base(Path("base"), "qwen3")
    said = art("certify", "base").stdout
    assert re.search(r"engine +passed +288 sampled tokens", said) and "base is certified" in said
    assert "vLLM would be started with:\nvllm serve --model base" in said


def test_what_is_computed_otherwise_is_found_and_not_certified(
    art: Art, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merging that leaves the adapter out."""
    base = write_base(Path("base"), "qwen3")
    monkeypatch.setattr(
        "art_cli.models.policy.write_merged",
        lambda adapted, folder: adapted.unload().save_pretrained(folder),
    )
    result = art("certify", "base", "--json")
    assert result.exit_code == EXIT_FAILED
    found = trials(result)
    assert [n for n, row in found.items() if row["status"] == "failed"] == ["merged"]
    assert found["merged"]["difference"] > 0.1
    assert not is_certified(json.loads((base / "config.json").read_text()))


@pytest.mark.parametrize("weight", ["model.norm.weight", "model.layers.0.mlp.up_proj.weight"])
def test_what_differs_from_transformers_is_found_in_each_comparison(
    art: Art, monkeypatch: pytest.MonkeyPatch, weight: str
) -> None:
    """As if transformers computed one layer in another way."""
    reference = Specimen.reference

    def other(*arguments: Any) -> Any:
        model = reference(*arguments)
        with torch.no_grad():
            model.get_parameter(weight).mul_(1.2)
        return model

    write_base(Path("base"), "qwen3")
    monkeypatch.setattr(Specimen, "reference", other)
    found = trials(art("certify", "base", "--json"))
    wrong = [name for name, row in found.items() if row["status"] == "failed"]
    assert wrong == [name for name in COMPARED if name != "saved"]


def test_a_family_whose_code_fails_is_a_row_and_no_traceback(
    art: Art, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    write_base(Path("base"), "qwen3")
    monkeypatch.setattr(Policy, "save_weights", broken)
    result = art("certify", "base")
    assert result.exit_code == EXIT_FAILED
    assert "RuntimeError: shapes cannot be multiplied" in result.stdout
    assert "base is not certified: an adapter" in result.stdout


@pytest.mark.parametrize(
    ("change", "name", "why"),
    [
        ({"model_type": "no_such_family"}, "architecture", "'no_such_family', which transformers"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weights", "quantized (fp8)"),
        ({"vocab_size": 100}, "tokenizer", "310 tokens, and the model 100 embeddings"),
        ({"num_hidden_layers": "two"}, "architecture", "'num_hidden_layers' expected int"),
    ],
)
def test_a_config_that_cannot_be_trained_says_why(
    art: Art, change: dict[str, Any], name: str, why: str
) -> None:
    write_base(Path("base"), "llama", **change)
    result = art("certify", "base", "--json")
    assert result.exit_code == EXIT_FAILED, result.output
    row = trials(result)[name]
    assert row["status"] == "failed" and why in row["what"].replace("\n", " ")


def test_a_template_that_cannot_be_used_says_so(art: Art) -> None:
    base = write_base(Path("base"), "llama")
    template = "{{ raise_exception('only a system message') }}"
    (base / "chat_template.jinja").write_text(template)
    result = art("certify", "base", "--json")
    assert result.exit_code == EXIT_FAILED
    assert "only a system message" in trials(result)["tokenizer"]["what"]


def test_all_that_ends_a_turn_is_named(art: Art) -> None:
    base = write_base(Path("base"), "llama")
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    row = trials(art("certify", "base", "--json"))["stop tokens"]
    assert row["what"] == "a turn ends with <|endoftext|>, <|im_end|>"


def test_without_a_tokenizer_the_rest_is_tried_and_nothing_is_remembered(art: Art) -> None:
    base = write_base(Path("base"), "llama")
    for file in base.glob("*token*"):
        file.unlink()
    result = art("certify", "base")
    assert result.exit_code == 0, result.output
    assert "tokenizer     skipped  no tokenizer in base" in result.stdout
    assert "what could be tried has passed" in result.stdout and not record_file().exists()


@pytest.mark.parametrize(
    ("base", "error", "said"),
    [
        ("nowhere", PreflightError, "the hub does not answer"),
        ("tiny", UsageError, "is made by art itself"),
        ("config.yaml", UsageError, "name its model.base"),
        ("a/b/c", UsageError, "neither a folder nor the id of a model"),
    ],
)
def test_a_base_that_is_not_there_is_a_mistake_in_words(
    art: Art, base: str, error: type[Exception], said: str
) -> None:
    result = art("certify", base)
    assert isinstance(result.exception, error) and said in str(result.exception)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_architecture_of_every_published_base_is_certified(art: Art, name: str) -> None:
    base = write_base(Path("base"), "llama")
    config = {k: v for k, v in PUBLISHED[name].items() if k != "quantization_config"}
    (base / "config.json").write_text(json.dumps(config))
    found = trials(art("certify", "base", "--json"))
    assert [row for row in found.values() if row["status"] != "passed"] == []
