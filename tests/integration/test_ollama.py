"""What Ollama makes, in Go, of a Modelfile of `art deploy`: what the tokenizer's template does."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from short_run import CONFIG, Art
from transformers import AutoTokenizer
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.envs.registry import env_class
from art_cli.envs.tools import schemas_of
from art_cli.errors import EXIT_USAGE
from art_cli.runs.directory import RunDir

GO = shutil.which("go")
PROGRAM = Path(__file__).with_name("ollama") / "main.go"
TEMPLATES = Path(__file__).parents[1] / "art_cli" / "templates"
CHATML = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
KNOWN = {
    "tiny": None,  # the checkpoint's own
    "chatml": CHATML,
    "qwen3": (TEMPLATES / "qwen3.jinja").read_text(),
    "llama3": (TEMPLATES / "llama3.jinja").read_text(),
}
SPECIAL = ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"]
Rendered = dict[str, Any]
Execute = Callable[[Path, list[Any]], list[Rendered]]

pytestmark = pytest.mark.skipif(GO is None, reason="needs Go: apt-get install golang-go")


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Execute:
    """A Modelfile's template with conversations."""
    assert GO
    program = tmp_path_factory.mktemp("go") / "render"
    subprocess.run([GO, "build", "-o", str(program), str(PROGRAM)], check=True, timeout=600)

    def run(modelfile: Path, conversations: list[Any]) -> list[Rendered]:
        words = [str(program), str(modelfile)]
        text = json.dumps(conversations)
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="module", params=["order_desk", "tic_tac_toe"])
def env(request: Any) -> str:
    """One with tools, one without."""
    return request.param


@pytest.fixture(scope="module")
def trained(env: str, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "config.yaml").write_text(CONFIG)
    words = [f"env.use={env}", "train.steps=1", "eval=null", "sampling.max_tokens=20"]
    art = Art(folder, "config.yaml", *words, "warmup.epochs=1", "warmup.num_demonstrations=8")
    assert art.wait() == 0, art.output
    return art.run


@pytest.fixture(params=KNOWN)
def deployed(request: Any, trained: RunDir) -> tuple[Path, Any]:
    """A Modelfile, and the tokenizer of the weights beside it."""
    checkpoint, template = trained.checkpoint(1), KNOWN[request.param]
    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    original = tokenizer.chat_template
    try:
        tokenizer.chat_template = template or original
        tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
        tokenizer.save_pretrained(checkpoint)
        result = deploy(trained, request.param)
        assert result.exit_code == 0, f"{result.output}{result.exception}"
    finally:
        tokenizer.chat_template = original
        tokenizer.save_pretrained(checkpoint)
    folder = trained.deployment("ollama", request.param)
    return folder / "Modelfile", AutoTokenizer.from_pretrained(folder / "weights")


def deploy(run: RunDir, name: str) -> Any:
    words = ["deploy", str(run.root), "--to", "ollama", "--name", name, "--checkpoint", "last"]
    return CliRunner().invoke(app, words)


def said_by(tokenizer: Any, conversation: dict[str, Any]) -> str:
    text = tokenizer.apply_chat_template(
        conversation["messages"],
        tools=conversation["tools"] or None,
        tokenize=False,
        add_generation_prompt=True,
    )
    return text.removeprefix("<|begin_of_text|>")  # Ollama's own


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


def test_it_renders_what_was_trained_on_to_the_letter(
    deployed: tuple[Path, Any], env: str, execute: Execute
) -> None:
    modelfile, tokenizer = deployed
    tools = schemas_of(env_class(env))
    said = [*PLAIN, *WITH_TOOLS] if tools else PLAIN
    asked = [
        {"messages": [*system, *messages], "tools": offered}
        for messages in said
        for system in ([], [SYSTEM])
        for offered in ([], tools)[: 2 if tools else 1]
    ]
    found = execute(modelfile, asked)
    for conversation, each in zip(asked, found, strict=True):
        assert each["text"] == said_by(tokenizer, conversation)
    assert {each["tag"] for each in found} == {"<tool_call>" if tools else "{"}


@pytest.mark.parametrize("env", ["order_desk"], indirect=True)
@pytest.mark.parametrize("deployed", ["qwen3"], indirect=True)
def test_thoughts_are_read_and_forgotten_as_they_were(
    deployed: tuple[Path, Any], env: str, execute: Execute
) -> None:
    modelfile, tokenizer = deployed
    why = {"thinking": "first, look", "reasoning_content": "first, look"}  # Ollama's name, jinja's
    asked = [
        {"messages": [ASK, CALL | why, ONE], "tools": []},
        {"messages": [ASK, CALL | why, ONE, ANSWER | why, MORE], "tools": []},
        {"messages": [SYSTEM, ASK, ANSWER | why, MORE, CALL | why, ONE], "tools": []},
    ]
    found = execute(modelfile, asked)
    assert found[0]["thinking"] == ["<think>", "</think>"]
    assert [each["text"] for each in found] == [said_by(tokenizer, c) for c in asked]
    assert ["first, look" in each["text"] for each in found] == [True, False, True]


@pytest.mark.parametrize("env", ["order_desk"], indirect=True)
@pytest.mark.parametrize("deployed", ["qwen3", "chatml"], indirect=True)
def test_tools_of_others_are_told_as_far_as_ollama_knows_them(
    deployed: tuple[Path, Any], env: str, execute: Execute
) -> None:
    modelfile, tokenizer = deployed
    properties = {"city": {"type": "string", "enum": ["Oslo"]}}
    parameters = {"type": "object", "required": ["city"], "properties": properties}
    function = {"name": "weather", "description": "Now.", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    (found,) = execute(modelfile, [{"messages": [SYSTEM, ASK], "tools": tools}])
    theirs = said_by(tokenizer, {"messages": [SYSTEM, ASK], "tools": tools})
    before, _, behind = theirs.partition(json.dumps(tools[0]))
    assert found["text"].startswith(before) and found["text"].endswith(behind) and behind
    told = json.loads(found["text"].removeprefix(before).removesuffix(behind))
    assert told == tools[0]


@pytest.mark.parametrize("env", ["tic_tac_toe"], indirect=True)
def test_a_template_that_go_cannot_say_is_told(trained: RunDir) -> None:
    file = trained.checkpoint(1) / "chat_template.jinja"
    original = file.read_text()
    try:
        file.write_text("{{ messages | length }}" + CHATML)
        result = deploy(trained, "odd")
        assert getattr(result.exception, "exit_code", 0) == EXIT_USAGE
        assert "cannot be said in Ollama's language" in str(result.exception)
        assert "--to merged, serve or skyserve" in str(result.exception)
    finally:
        file.write_text(original)
