"""`art envs check` calls no tool that may write to a user's data unasked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents_server import documents, served, write_documents
from pet_api import PetApi
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.preflight.check_result import CheckResult
from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.subject import Options
from art_cli.rollout.env_class import env_in

TASKS = {"data": "tasks.jsonl", "input": "question", "target": "answer", "grade": "exact"}
WRITING = "delete_document, write_document, empty_document"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"What is in note{i % 5}.txt, {i}?", "answer": "x"} for i in range(60)]
    Path("tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return write_documents(tmp_path / "documents")


@pytest.fixture
def api() -> Iterator[PetApi]:
    with PetApi() as server:
        yield server


def checked(use: str, allow_writes: bool, **args: object) -> list[CheckResult]:
    env = env_in(use)
    options = Options(episodes=2, allow_writes=allow_writes)
    return list(check(use, env, env.Config(**TASKS, **args), options))


def of(results: list[CheckResult], name: str) -> list[CheckResult]:
    return [f for f in results if f.check == name]


@pytest.mark.slow
def test_a_check_leaves_the_data_of_a_server_as_it_is(folder: Path) -> None:
    pytest.importorskip("mcp")
    before = documents(folder)
    with served(folder) as url:
        found = checked("mcp", False, url=url)
    assert documents(folder) == before
    (told,) = of(found, "tools")
    assert (told.status, told.what.endswith(f"stays: {WRITING}")) == ("warning", True)
    assert "--allow-writes" in told.todo and "a copy of the data" in told.todo
    assert [f for f in found if f.status == "failed"] == []
    assert "calls were accepted" in of(found, "turns")[0].what  # those that read are called


@pytest.mark.slow
def test_a_check_calls_all_tools_where_the_user_says_so(folder: Path) -> None:
    pytest.importorskip("mcp")
    before = documents(folder)
    with served(folder) as url:
        found = checked("mcp", True, url=url, tools=("write_document",))
    assert documents(folder) != before
    assert of(found, "tools")[0].what == "1 in an episode: write_document"


def test_a_check_of_an_api_sends_what_reads(folder: Path, api: PetApi) -> None:
    spec = {"spec": str(api.write(folder.parent)), "base_url": api.url, "auth": {"token": None}}
    names = ("findPets", "createPet", "deletePet")
    found = checked("openapi", False, **spec, operations=names)
    assert {method for method, *_ in api.asked} == {"GET"}
    assert of(found, "tools")[0].what.endswith("stays: createPet, deletePet")
    checked("openapi", True, **spec, operations=names)
    assert {method for method, *_ in api.asked} >= {"GET", "POST", "DELETE"}


SHELF = '''
from pathlib import Path
from art_cli import Done, Env, tool

class Shelf(Env):
    """A user's own env: what its tool writes outlives the episode, and its gold player writes."""

    has_side_effects = True
    num_scenarios = {"train": 24, "val": 10, "test": 10}

    async def start(self):
        self.note = ""
        return f"Write {self.scenario.id} down, in capitals."

    @tool(writes=True)
    async def write(self, note: str) -> str:
        """Write a note."""
        self.note = note
        Path("notes").write_text(note)
        return "written"

    async def score(self, trajectory):
        return float(self.note == self.scenario.id.upper())

    def gold(self):
        arguments = f\'{{"note": "{self.scenario.id.upper()}"}}\'
        yield f\'<tool_call>{{"name": "write", "arguments": {arguments}}}</tool_call>\'
        yield "It is written."
'''


def test_who_trains_on_a_server_is_told_before_a_model_is_loaded(folder: Path, api: PetApi) -> None:
    api.write(folder.parent)
    args = f"spec: pets.json, base_url: {api.url}, auth: {{token: null}}, operations: [findPets"
    tasks = "data: tasks.jsonl, input: question, target: answer, grade: exact"
    for more, warnings in ((", createPet]", 1), ("]", 0)):
        Path("config.yaml").write_text(
            f"env: {{use: openapi, args: {{{args}{more}, {tasks}}}}}\n"
            "model: {base: tiny, adapter: null}\ntrain: {steps: 1}\n"
        )
        result = CliRunner().invoke(app, ["validate", "config.yaml"], env={"COLUMNS": "999"})
        assert result.exit_code == 0, result.output
        assert result.stdout.count("and what they change stays: createPet.") == warnings
    assert api.asked == []


@pytest.mark.slow
@pytest.mark.parametrize("python", [None, sys.executable], ids=["here", "env.python"])
def test_an_env_says_itself_that_what_it_writes_stays(folder: Path, python: str | None) -> None:
    """Nor does its own perfect player write, who is not blamed for it."""
    Path("shelf.py").write_text(SHELF)
    env = env_in("shelf.py:Shelf", python)
    for allow_writes, gold in ((False, "skipped"), (True, "ok")):
        options = Options(episodes=2, python=python, allow_writes=allow_writes)
        found = list(check("shelf.py:Shelf", env, env.Config(), options))
        assert [f for f in found if f.status == "failed"] == []
        assert of(found, "gold")[0].status == gold and Path("notes").exists() is allow_writes
        assert of(found, "exploits")[0].status == gold
    result = CliRunner().invoke(app, ["envs", "check", "shelf.py:Shelf", "--episodes", "2"])
    assert result.exit_code == 0 and "not called, as they may write" in result.stdout
