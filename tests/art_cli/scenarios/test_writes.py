"""`art scenarios` calls no tool that may write to a user's data, unless the user says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents_server import command, documents, served, write_documents
from loopback_judge import Answer, Ask, LoopbackJudge, scored
from pet_api import PetApi
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.envs.registry import env_class

MCP = "mcp"
CONFIG = "\nmodel: {base: Qwen/Qwen3-8B}\ntrain: {steps: 1}\n"
WRITING = "delete_document, write_document, empty_document"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-tests")
    return write_documents(tmp_path / "documents")


@pytest.fixture
def api() -> Iterator[PetApi]:
    with PetApi() as server:
        yield server


def art(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["scenarios", *arguments])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["command", "url"])
def test_only_tools_that_are_marked_as_read_only_are_called(folder: Path, how: str) -> None:
    pytest.importorskip(MCP)
    before = documents(folder)
    if how == "command":
        result = art("--mcp", command(folder), "--exact", "--num", "8")
    else:
        with served(folder) as url:
            result = art("--mcp", url, "--exact", "--num", "8")
    assert result.exit_code == 0, result.exception
    assert documents(folder) == before
    assert f"left out: {WRITING}: not called, as they may write" in result.stdout
    assert "--tools NAME,... --allow-writes" in result.stdout
    rows = [json.loads(line) for line in Path("tasks.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"list_documents", "read_document"}
    # The policy is not offered what no task needs.
    Path("config.yaml").write_text(result.stdout.partition("\n\n")[2] + CONFIG)
    loaded = load_experiment([Path("config.yaml")], plugin_config=lambda use: env_class(use).Config)
    assert loaded.env_settings.tools == ("list_documents", "read_document")


@pytest.mark.slow
def test_a_tool_that_may_write_is_named_and_allowed(folder: Path) -> None:
    pytest.importorskip(MCP)
    ask = "--mcp", command(folder), "--exact", "--num", "4"
    before = documents(folder)
    for more, says in (
        (("--tools", "read_document,write_document"), "these are named, and may write"),
        (("tools=[write_document]",), "all tools may write to the server's own data: write_doc"),
        (("--allow-writes",), "--allow-writes needs --tools NAME"),
        (("--tools", "read_document", "tools=[read_document]"), "say the same; leave one of them"),
        (("--tools", "no_such_tool"), "has no tool 'no_such_tool'"),
    ):
        result = art(*ask, *more)
        assert result.exit_code and says in str(result.exception), result.exception
    assert documents(folder) == before and not Path("tasks.jsonl").exists()
    result = art(*ask, "--tools", "read_document,write_document", "--allow-writes")
    assert result.exit_code == 0, result.exception
    assert 'tools: ["read_document", "write_document"]' in result.stdout
    assert documents(folder) != before


@pytest.mark.slow
def test_what_a_model_writes_calls_no_writing_tool_either(folder: Path) -> None:
    """Neither for the examples that the model is shown, nor where it names such a tool itself."""
    pytest.importorskip(MCP)
    seen: list[dict[str, Any]] = []

    def answer(ask: Ask) -> Answer:
        system = ask.messages[0]["content"]
        if "judge of AI agents" in system:
            return scored(lambda b: float("tool" in json.dumps(b["messages"])))(ask)
        if "2 + 2" in ask.messages[-1]["content"]:
            return Answer(text="4")
        if "rubric" in system:
            return Answer(text='{"rubric": "- right"}')
        if not system.startswith("You write tasks"):
            result = json.loads(ask.messages[1]["content"])["results"][-1]["result"]
            return Answer(text=json.dumps({"answer": result.split()[-1]}))
        seen.append(json.loads(ask.messages[1]["content"]))
        tasks = [
            {
                "question": f"What does document number {len(seen)} say after {name}?",
                "calls": [{"name": name, "arguments": json.dumps({"name": "note1.txt"})}],
            }
            for name in ("read_document", "delete_document", "write_document", "empty_document")
        ]
        return Answer(text=json.dumps({"tasks": tasks}))

    before = documents(folder)
    with LoopbackJudge(then=answer) as server:
        model = f"{server.model},api_base={server.api_base},prices.input=1,prices.output=1"
        result = art("--mcp", command(folder), "--model", model, "--num", "4")
    assert documents(folder) == before
    assert result.exit_code == 0, result.exception
    assert f"left out: {WRITING}: not called" in result.stdout
    assert "tasks: a call was refused" in result.stdout
    for document in seen:
        assert {t["name"] for t in document["tools"]} == {"list_documents", "read_document"}


def test_an_operation_that_writes_needs_more_than_its_name(folder: Path, api: PetApi) -> None:
    api.write(Path.cwd())
    ask = "--openapi", "pets.json", f"base_url={api.url}", "auth={token: null}", "--exact"
    given = "--value", "name=Rex", "--num", "4"
    result = art(*ask, *given, "operations=[findPets,createPet,deletePet]")
    assert result.exit_code == 0, result.exception
    assert "left out: createPet, deletePet: not called, as they may write" in result.stdout
    assert "tasks.jsonl: 4 tasks (" in result.stdout and "of 1 tools: findPets" in result.stdout
    result = art(*ask, *given, "--force", "--tools", "createPet")
    assert "these are named, and may write" in str(result.exception)
    assert {method for method, *_ in api.asked} == {"GET"}
    result = art(*ask, *given, "--force", "--tools", "createPet", "--allow-writes")
    assert {method for method, *_ in api.asked} == {"GET", "POST"}
