"""`art scenarios --model`, with a model and an HTTP API on loopback ports."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import Answer, Ask, LoopbackJudge, scored
from pet_api import PETS, PetApi
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.envs.registry import env_class
from art_cli.scenarios.source import ToolResult
from art_cli.scenarios.support import is_supported

WORDINGS = (
    "Say whose good record that is, please",
    "I forgot what our good animal goes by",
    "Which name did they give to the good one",
    "What is written on its good collar",
)  # of one question: what they ask for is found by the same call


class Author:
    """Writes tasks about pets: a good one, and one that fails in each way."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._next = 0

    def __call__(self, ask: Ask) -> Answer:
        system = ask.messages[0]["content"]
        if "judge of AI agents" in system:
            self.asked["judge"] += 1
            lucky = "lucky" in ask.text  # a task that doing nothing solves as well
            return scored(lambda b: 0.5 if lucky else float("tool" in json.dumps(b["messages"])))(
                ask
            )
        if "2 + 2" in ask.messages[-1]["content"]:
            return Answer(text="4")
        document = json.loads(ask.messages[1]["content"])
        if system.startswith("You write tasks"):
            self.asked["tasks"] += 1
            return Answer(text=json.dumps({"tasks": self._tasks(document)}))
        if "rubric" in system:
            self.asked["rubric"] += 1
            assert document["description"] == "For a shelter." and len(document["tools"]) == 2
            return Answer(text='Here: {"rubric": "- the right pet"}')
        self.asked["answer"] += 1
        pet = json.loads(document["results"][-1]["result"])
        answer = None if "unclear" in document["question"] else pet["name"]
        if "invented" in document["question"]:
            answer = "Bello"
        return Answer(text=json.dumps({"answer": answer}))

    def _tasks(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        assert {e["call"] for e in document["examples"]} == {"findPets", "pets_get"}
        found = []
        for kind in ("good", "refused", "lucky", "told", "unclear", "invented"):
            number = (self._next // 6 + 4 * (kind == "lucky")) % len(PETS)
            self._next += 1
            question = f"How is the {kind} one of number {number} called, animal {self._next}?"
            if kind == "told":
                question += f" Is it Pet {number}?"
            arguments = json.dumps({"petId": "none" if kind == "refused" else str(number)})
            calls = [{"name": "pets_get", "arguments": arguments}]
            found.append({"question": question, "calls": calls})
        first = found[0]
        again = [first["question"].upper(), *(f"{text} {self._next}?" for text in WORDINGS)]
        return [*found, *({**first, "question": q} for q in again), {"question": "?"}]


@pytest.fixture
def api() -> Iterator[PetApi]:
    with PetApi() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: PetApi) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-tests")
    api.write(tmp_path)
    Path("who.txt").write_text("For a shelter.")
    return tmp_path


def art(api: PetApi, author: LoopbackJudge, *arguments: str) -> Result:
    model = f"{author.model},api_base={author.api_base},prices.input=1,prices.output=1"
    model += ",params.max_tokens=2000"
    source = "--openapi", "pets.json", f"base_url={api.url}", "auth={token: null}"
    more = "operations=[findPets,pets_get]", "--model", model, "--describe", "who.txt"
    return CliRunner().invoke(app, ["scenarios", *source, *more, *arguments])


def test_what_the_model_writes_is_tried_before_it_is_kept(folder: Path, api: PetApi) -> None:
    author = Author()
    with LoopbackJudge(then=author) as server:
        result = art(api, server, "--num", "6")
        assert result.exit_code == 0, result.exception
        rows = [json.loads(line) for line in Path("tasks.jsonl").read_text().splitlines()]
        assert len(rows) == 6 and all("good" in row["question"] for row in rows)
        assert len({json.dumps(row["calls"]) for row in rows}) == 6
        for row in rows:
            assert row["answer"] == PETS[row["calls"][0]["arguments"]["petId"]]["name"]
        for why in (
            *(
                "a call was refused",
                "its results give no short answer",
                "the same calls and answer",
            ),
            *("the question says the answer", "doing nothing is as good"),
            "the results do not hold the answer",
        ):
            assert why in result.stdout
        assert Path("tasks.rubric.txt").read_text() == "- the right pet\n"
        assert "$0.0" in result.stdout and Path("tasks.costs.jsonl").stat().st_size
        # Once more: nothing is paid but the question whether the model is there.
        asked = author.asked.copy()
        assert art(api, server, "--num", "6", "--force").exit_code == 0
        assert author.asked == asked and len(server.asked) > 6
    Path("config.yaml").write_text(
        result.stdout.partition("\n\n")[2] + "\nmodel: {base: Qwen/Qwen3-8B}\ntrain: {steps: 1}\n"
    )
    loaded = load_experiment([Path("config.yaml")], plugin_config=lambda use: env_class(use).Config)
    assert loaded.experiment.judge and loaded.experiment.judge.rubric_file == "tasks.rubric.txt"


@pytest.mark.parametrize(
    ("answer", "question", "holds"),
    [
        ("Rex", "Who is number 3?", True),
        ("the dog REX", "Who is number 3?", True),
        ("2", "How many are there?", True),
        ("7", "How old are they together?", True),
        ("3.50", "How old are they on average?", True),
        ("12", "How old is Rex in dog years, at 4 for one?", True),
        ("1,234", "What did Ada cost?", True),
        ("Bello", "Who is number 3?", False),
        ("the dog Bello", "Who is number 3?", False),
        ("9999", "How old is Rex?", False),
        ("yes", "Is Rex older than Ada?", False),
    ],
)
def test_an_answer_comes_of_results(answer: str, question: str, holds: bool) -> None:
    rows = [{"name": "Rex", "is": "the dog", "age": 3}, {"name": "Ada", "age": 4, "usd": 1234}]
    calls = [ToolResult(tool="find", arguments={}, result=json.dumps(rows))]
    assert is_supported(answer, question, calls) == holds


def test_money_that_runs_out_leaves_what_there_is(folder: Path, api: PetApi) -> None:
    with LoopbackJudge(then=Author()) as server:
        result = art(api, server, "--num", "60", "--max-usd", "0.05")
        assert "--max-usd=0.05 is used up" in str(result.exception)
        assert getattr(result.exception, "exit_code", None) == 4
        assert Path("tasks.jsonl").read_text().count("\n") > 0
        assert "Traceback" not in result.output


def test_mistakes(folder: Path, api: PetApi) -> None:
    with LoopbackJudge(then=lambda ask: Answer(text="I would rather not.")) as server:
        assert "gave no answer that can be used" in str(art(api, server).exception)
        assert "cannot read no.txt" in str(art(api, server, "--describe", "no.txt").exception)
        assert "are for --model" in str(
            CliRunner().invoke(app, ["scenarios", "--exact", "--max-usd", "1"]).exception
        )
        assert "--exact, without a model, or --model" in str(art(api, server, "--exact").exception)
    assert not Path("tasks.jsonl").exists()
