"""`art scenarios --exact`, with a real HTTP API on a loopback port and a real MCP server."""

import asyncio
import json
import random
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pet_api import PETS, PetApi
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.envs.registry import env_class
from art_cli.envs.tools import Tool
from art_cli.preflight.envs.players import Repeater, call_text
from art_cli.rollout.env_class import env_in
from art_cli.rollout.rollout import rollout
from art_cli.scenarios.exact import is_empty
from art_cli.scenarios.rows import splits_of, tasks_of
from art_cli.scenarios.source import ToolResult, ToolsSource
from art_cli.scenarios.values import KnownValues, UnknownValue
from art_cli.training.demonstrations import load_demonstrations

CONFIG = "\nmodel: {base: Qwen/Qwen3-8B}\ntrain: {steps: 1}\n"
PET_TOOLS = ("auth={token: null}", "operations=[findPets,pets_get,count,odd]")
LIBRARY = Path(__file__).parents[3] / "configs" / "library" / "mcp_server.py"


@pytest.fixture(scope="module")
def api() -> Iterator[PetApi]:
    with PetApi() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: PetApi) -> Path:
    monkeypatch.chdir(tmp_path)
    api.write(tmp_path)
    return tmp_path


def art(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["scenarios", *arguments])


def pets(api: PetApi, *arguments: str) -> Result:
    return art("--openapi", "pets.json", f"base_url={api.url}", *PET_TOOLS, "--exact", *arguments)


def rows(file: str = "tasks.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def test_the_tasks_of_an_api_are_played_by_its_env(folder: Path, api: PetApi) -> None:
    result = pets(api, "--num", "24", "--demonstrations", "warm.jsonl")
    assert result.exit_code == 0, result.exception
    found = rows()
    assert len({row["question"] for row in found}) == len(found) == 24
    assert {row["kind"] for row in found} == {"findPets", "pets_get"}
    assert {row["level"] for row in found} == {1, 2, 3}
    assert re.search(r"left out: \d+ calls of count did not repeat", result.stdout)
    # What one row asks, another's answer must not be: a call is in one split.
    placed = {(json.dumps(row["calls"]), row["split"]) for row in found}
    assert len(placed) == len({calls for calls, _ in placed})
    assert {split for _, split in placed} == {"train", "val", "test"}

    Path("config.yaml").write_text(result.stdout.partition("\n\n")[2] + CONFIG)
    loaded = load_experiment([Path("config.yaml")], plugin_config=lambda use: env_class(use).Config)
    env, cfg = env_class(loaded.experiment.env.use), loaded.env_settings
    scenario = next(s for s in env.scenarios(cfg, "train") if s.data["kind"] == "pets_get")
    row = next(row for row in found if row["question"] == scenario.data["input"])
    turns = [*(call_text(c["name"], c["arguments"]) for c in row["calls"]), row["answer"]]
    played = asyncio.run(rollout(env, cfg, scenario, Repeater(turns)))
    assert (played.error, played.reward, played.num_tool_errors) == (None, 1.0, 0)
    pet = PETS[row["calls"][0]["arguments"]["petId"]]
    assert row["answer"] in (json.dumps(pet), *map(str, pet.values()))
    told = load_demonstrations("warm.jsonl", env, cfg, 99)
    assert len(told) == sum(row["split"] == "train" for row in found)
    assert [m["role"] for m in told[0]] == ["system", "user", "assistant", "tool", "assistant"]

    before = Path("tasks.jsonl").read_bytes()
    assert "--force replaces it" in str(pets(api, "--num", "24").exception)
    assert pets(api, "--num", "24", "--force").exit_code == 0
    assert Path("tasks.jsonl").read_bytes() == before
    summary = json.loads(pets(api, "--seed", "1", "--force", "--json").stdout)
    assert summary["tools"] == ["findPets", "pets_get"] and "use: openapi" in summary["config"]


@pytest.mark.slow
def test_the_tasks_of_an_mcp_server(folder: Path) -> None:
    pytest.importorskip("mcp")
    result = art("--mcp", f"{{python}} {LIBRARY}", "--exact", "--num", "20", "tools=[look_up]")
    assert "no value is known for 'title' of look_up" in str(result.exception)
    given = "--value", "title=The Last River", "--value", "title=The Glass River"
    result = art(
        *("--mcp", f"{{python}} {LIBRARY}", "--exact", "--num", "8", "tools=[look_up]"), *given
    )
    assert result.exit_code == 0, result.exception
    assert {row["calls"][0]["arguments"]["title"] for row in rows()} == {
        *("The Last River", "The Glass River")
    }


def test_the_env_may_run_in_an_interpreter_of_its_own(folder: Path) -> None:
    """Same tasks, and a config that trains on them there."""
    ask = "--mcp", f"{{python}} {LIBRARY}", "--exact", "--num", "8"
    assert art(*ask).exit_code == 0
    there = art(*ask, "--out", "there.jsonl", "--python", sys.executable)
    assert there.exit_code == 0, there.exception
    assert rows("there.jsonl") == rows()
    Path("config.yaml").write_text(there.stdout[there.stdout.index("env:") :] + CONFIG)
    loaded = load_experiment([Path("config.yaml")], plugin_config=lambda *u: env_in(*u).Config)
    assert loaded.experiment.env.python == sys.executable
    assert loaded.env_settings.data == "there.jsonl"
    missing = art(*ask, "--force", "--python", "no-such-python")
    assert "env.python: there is no program 'no-such-python'" in str(missing.exception)


def test_mistakes(folder: Path, api: PetApi) -> None:
    for arguments, message in (
        (("--exact",), "give one of --mcp"),
        (("--exact", "--mcp", "x", "--openapi", "y"), "give one of --mcp"),
        (("--mcp", "x"), "say how the tasks are made: --exact"),
        (("--exact", "--mcp", "http://127.0.0.1:9/mcp"), "127.0.0.1:9/mcp cannot be used"),
        (("--exact", "--mcp", "no-such-program"), "there is no program 'no-such-program'"),
        (("--exact", "--openapi", "no.yaml"), "there is no file 'no.yaml'"),
        (("--exact", "--openapi", "pets.json", "base_ur=x"), "Did you mean 'base_url'?"),
        (("--exact", "--mcp", "x", "shared=true"), "shared=true has no place here"),
        (("--exact", "--mcp", "x", "--value", "a"), "--value 'a': expected NAME=VALUE"),
    ):
        result = art(*arguments)
        assert result.exit_code and message in str(result.exception), result.exception
    result = pets(api, "operations=[count]")
    assert re.search("no task came of it: .* calls of count did not repeat", str(result.exception))
    result = pets(api, "operations=[odd]", "--value", "how=404")
    assert "calls of odd refused (error: 404 Not Found" in str(result.exception)
    result = pets(api, "operations=[odd]", "--value", "how=429")
    assert "calls of odd got no answer from the server (GET http" in str(result.exception)
    assert not Path("tasks.jsonl").exists()


def test_arguments_are_of_the_schema_and_of_what_was_seen() -> None:
    schema = {
        "type": "object",
        "required": ["kind", "petId", "num", "tags", "who"],
        "properties": {
            "kind": {"$ref": "#/$defs/Kind"},
            "petId": {"type": "string"},
            "num": {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 4}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string", "examples": ["red"]}},
            "who": {"allOf": [{"type": "object"}, {"$ref": "#/$defs/Named"}]},
            "secret": {"type": "string", "pattern": "^k"},
        },
        "$defs": {
            "Kind": {"enum": ["a", "b"]},
            "Named": {"required": ["name"], "properties": {"name": {"type": "string"}}},
        },
    }
    tool = Tool(name="act", description="", parameters=schema)
    values, rng = KnownValues({"name": ["Ann"]}), random.Random(0)
    with pytest.raises(UnknownValue, match="petId"):
        values.arguments(tool, rng)
    values.learn('{"found": [{"id": 7, "ok": true}, {"id": 8}]}')
    made = [values.arguments(tool, rng) for _ in range(60)]
    assert {m["kind"] for m in made} == {"a", "b"} and {m["petId"] for m in made} == {"7", "8"}
    assert {m["num"] for m in made} == {3, 4} and made[0]["tags"] == ["red"]
    assert made[0]["who"] == {"name": "Ann"} and not any("secret" in m for m in made)
    values.learn("key\nlock")
    assert {m.get("secret") for m in (values.arguments(tool, rng) for _ in range(60))} == {
        *("key", None)
    }


KIN = 'Use look with name "Rex". Answer with the number of entries of "kin"'


def made_of(results: list[tuple[dict[str, Any], str]]) -> tuple[set[str], dict[str, int]]:
    """Return the answers of the tasks that come of results, and what was left out, by reason."""
    tool = Tool(name="act", description="Do it.", parameters={})
    calls = [ToolResult(tool="act", arguments=given, result=said) for given, said in results]
    found, faults = tasks_of(calls, {"act": tool}, 99, 0)
    return {row.answer for row in found}, {why: num for (_, why), num in faults.items()}


TODAY = f"{datetime.now(UTC):%d %B %Y}"
FOLLOW, SAME = "follow from their questions", "are the same whatever the arguments are"


@pytest.mark.parametrize(
    ("results", "answers", "reasons"),
    [
        # In the question: as it is, as another number, in other words around it, computed.
        ([({"id": 7}, '{"id": 7, "at": "Oslo"}')], {"Oslo", '{"id": 7, "at": "Oslo"}'}, {FOLLOW}),
        ([({"id": 7}, '{"id": "7.0"}')], set(), {FOLLOW}),
        ([({"text": "Hello you"}, "hello you")], set(), {FOLLOW}),
        ([({"text": t}, f"Echo: {t}") for t in ("a b", "c", "d", "e")], set(), {FOLLOW}),
        (
            [({"a": a, "b": b}, f"{a} and {b} are {a + b}.") for a, b in ((1, 2), (3, 9), (5, 5))],
            set(),
            {FOLLOW},
        ),
        # Said to everyone.
        ([({"n": n}, '{"ok": "yes"}') for n in range(3)], set(), {SAME}),
        ([({"n": n}, f'{{"ok": "yes", "v": "{v}"}}') for n, v in enumerate("xyzx")], None, {SAME}),
        # Of this machine, or of now.
        ([({}, '{"PATH": "/bin", "HOME": "/x", "mode": "on"}')], set(), {"environment"}),
        ([({}, "HOME=/x\nPATH=/bin\nmode=on")], set(), {"environment"}),
        ([({}, json.dumps({"at": TODAY, "y": TODAY[-4:]}))], set(), {"the date"}),
        ([({}, f'{{"started": {int(datetime.now(UTC).timestamp()) - 5}}}')], set(), {"the date"}),
        ([({}, '{"file": "/home/ann/notes.txt", "size": 12}')], {"12"}, {"a path"}),
        ([({}, '{"pid": 4711, "ok": "yes"}')], {"yes"}, {"a process"}),
        ([({}, "see http://127.0.0.1:8000/pets/1")], set(), {"an address"}),
        # And those that are answers all the same.
        ([({"id": 7}, '{"born": 1947}')], {"1947", '{"born": 1947}'}, set()),
        ([({}, '{"version": "1.2.3", "since": "2001-09-09"}')], None, set()),
        ([({"path": "/pets"}, "three dogs"), ({"path": "/x"}, "a cat")], None, set()),
    ],
)
def test_an_answer_needs_a_call_and_holds_elsewhere(
    results: list[tuple[dict[str, Any], str]], answers: set[str] | None, reasons: set[str]
) -> None:
    found, why = made_of(results)
    assert found if answers is None else found == answers
    assert len(why) == len(reasons) and all(any(r in w for w in why) for r in reasons), why


def test_a_call_has_ten_seconds_unless_more_are_given(folder: Path, api: PetApi) -> None:
    where = {"spec": "pets.json", "base_url": api.url}
    given = "auth={token: null}", "operations=[count]"
    for more, seconds in (((), 10), (("call_timeout=90",), 90)):
        source = ToolsSource("openapi", where, [*given, *more])
        assert source._settings.call_timeout == seconds


def test_what_is_asked_of_a_result() -> None:
    tool = Tool(name="look", description="Look a pet up.\nMore.", parameters={})
    calls = [
        ToolResult(
            tool="look", arguments={"name": "Rex"}, result='{"name": "Rex", "age": 3, "kin": []}'
        ),
        ToolResult(tool="look", arguments={"name": "Ada"}, result="x" * 1000),  # no answer
    ]
    found, _ = tasks_of(calls, {"look": tool}, 99, 0)
    assert {(row.question, row.answer) for row in found} == {
        ('Use look with name "Rex". Answer with its result alone, to the letter.', calls[0].result),
        ('Use look with name "Rex". Answer with the value of "age" in its result alone.', "3"),
        ('Look a pet up. (name "Rex") Answer with the value of "age" alone.', "3"),
        (f"{KIN} in its result alone.", "0"),
        ('Look a pet up. (name "Rex") Answer with the number of entries of "kin" alone.', "0"),
    }
    assert len(set(splits_of(found))) == 1
    assert is_empty('{"result": []}') and is_empty("null") and not is_empty("0")
