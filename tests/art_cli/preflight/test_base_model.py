"""What a base's config.json and tokenizer show is refused before anything is loaded or paid for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bases import write_base
from published import PUBLISHED
from short_run import COLOURS
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.errors import EXIT_PREFLIGHT, EXIT_USAGE, ConfigError
from art_cli.preflight.base_model import longest_of
from art_cli.preflight.certified import remember
from art_cli.preflight.small_model.config import as_transformers_reads

CONFIG = f"""
env: {{use: "{COLOURS}:Opposites"}}
model:
  base: base
  device: cpu
engine: {{max_model_len: 256}}
sampling: {{max_tokens: 16}}
train: {{steps: 1}}
"""
REFUSES = "{{ raise_exception('only a system message') }}"
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("config.yaml:4", {"model_type": "no_such"}, "of model_type 'no_such', which transformers"),
    ("config.yaml:4", {"quantization_config": {"quant_method": "gptq"}}, "quantized (gptq)"),
    ("config.yaml:4", {"model_type": "bart"}, "an encoder, which is not trained"),
    ("config.yaml:4", {"model_type": "clip_text_model"}, "is no language model"),
    ("config.yaml:4", {"hidden_size": "wide"}, "'hidden_size' expected int"),
    ("config.yaml:4", {"vocab_size": 100}, "310 tokens, and the model 100 embeddings"),
    (
        "config.yaml:6",
        {"max_position_embeddings": 128},
        "base reads at most 128 tokens, got 256; set",
    ),
]
Art = Callable[..., Result]


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Art:
    """Run `art` in a folder with a config and the base that it names; the hub is dead."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    Path("config.yaml").write_text(CONFIG)
    write_base(Path("base"), "llama")
    return lambda *words: CliRunner().invoke(app, list(words))


def said_by(result: Result) -> str:
    """The mistakes, if that is what ended the command."""
    assert isinstance(result.exception, ConfigError), (result.output, result.exception)
    return str(result.exception).replace("\n", " ")


@pytest.mark.parametrize(("place", "change", "why"), MISTAKES)
def test_a_base_that_cannot_be_trained_is_refused_by_all_in_the_same_words(
    art: Art, place: str, change: dict[str, Any], why: str
) -> None:
    write_base(Path("base"), "llama", **change)
    said = said_by(art("validate", "config.yaml"))
    assert said.startswith(f"{place}: ") and why in said
    assert ConfigError([]).exit_code == EXIT_USAGE
    assert said_by(art("run", "config.yaml")) == said
    assert said_by(art("run", "config.yaml", "--smoke")) == said
    assert not Path("runs").exists()
    doctor = art("doctor", "config.yaml", "--json")
    assert doctor.exit_code == EXIT_PREFLIGHT
    failed = [f for f in json.loads(doctor.stdout)["findings"] if f["status"] == "failed"]
    assert any(why.partition(";")[0] in " ".join(f["what"].split()) for f in failed), failed


@pytest.mark.parametrize(
    ("template", "why"), [("", "has no chat template"), (REFUSES, "only a system message")]
)
def test_a_template_that_cannot_be_used_is_refused(art: Art, template: str, why: str) -> None:
    (Path("base") / "chat_template.jinja").write_text(template)
    said = said_by(art("validate", "config.yaml"))
    assert said.startswith("config.yaml:4: model.base: ") and why in said


def test_a_template_without_tools_is_said_where_there_are_tools(art: Art) -> None:
    plain = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    opening = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    (Path("base") / "chat_template.jinja").write_text(plain + opening)
    said = "the chat template of base shows no tools: they are described in the system message"
    assert said not in art("validate", "config.yaml").stdout
    result = art("validate", "config.yaml", "env.use=order_desk")
    assert result.exit_code == 0 and said in " ".join(result.stdout.split())


def test_a_loss_of_routers_needs_a_router(art: Art) -> None:
    said = said_by(art("validate", "config.yaml", "train.router_aux_loss_coef=0.1"))
    assert said == (
        "command line: train.router_aux_loss_coef: has no effect: LlamaForCausalLM has no router; "
        "remove it"
    )
    assert said_by(art("run", "config.yaml", "train.router_aux_loss_coef=0.1")) == said
    write_base(Path("base"), "qwen3_moe")
    assert art("validate", "config.yaml", "train.router_aux_loss_coef=0.1").exit_code == 0


def test_a_default_that_is_too_long_names_what_to_add(art: Art) -> None:
    write_base(Path("base"), "llama", max_position_embeddings=2048)
    Path("config.yaml").write_text(CONFIG.replace("engine: {max_model_len: 256}\n", ""))
    said = said_by(art("validate", "config.yaml"))
    assert said.startswith(
        "config.yaml:4: engine.max_model_len: base reads at most 2048 tokens, got"
    )
    assert "add engine.max_model_len: 2048" in said
    said = said_by(art("validate", "config.yaml", "engine.max_model_len=3000"))
    assert said.startswith("command line: engine.max_model_len: base reads at most 2048")


def test_a_base_that_is_not_certified_is_said_in_one_line_until_it_is(art: Art) -> None:
    said = art("validate", "config.yaml").stdout
    assert said.count("base has not been certified by this version of art") == 1
    remember(json.loads(Path("base/config.json").read_text()), "base")
    result = art("validate", "config.yaml", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["warnings"] == []
    write_base(Path("base"), "llama", rope_theta=5000.0)  # other weights of another config
    assert len(json.loads(art("validate", "config.yaml", "--json").stdout)["warnings"]) == 1


def test_a_base_that_reads_images_is_said_to_be_given_text_alone(art: Art) -> None:
    write_base(Path("base"), "gemma3")
    config = json.loads(Path("base/config.json").read_text())
    Path("base/config.json").write_text(json.dumps({**config, "text_config": {"vocab_size": 520}}))
    warnings = json.loads(art("validate", "config.yaml", "--json").stdout)["warnings"]
    assert "only text is given to it" in warnings[0]


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("Qwen2.5-7B-Instruct", 32768),
        ("Llama-3.1-8B-Instruct", 131072),
        ("gpt-oss-20b", 131072),
        ("DeepSeek-V3", 163840),
        ("Phi-4-mini-instruct", 4096),
        ("Olmo-3-7B-Instruct", 65536),
        ("Qwen3.5-4B", 262144),
    ],
)
def test_how_far_a_published_base_reads(name: str, longest: int) -> None:
    assert longest_of(as_transformers_reads(PUBLISHED[name])) == longest


def test_a_rope_that_is_stretched_reads_further_and_a_recurrent_model_to_no_end() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    stretched = PUBLISHED["Qwen2.5-7B-Instruct"] | {"rope_scaling": rope}
    assert longest_of(as_transformers_reads(stretched)) == 131072
    assert longest_of(as_transformers_reads({"model_type": "mamba2"})) is None
