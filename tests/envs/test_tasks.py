"""Tasks that stand in a file: rows, splits, grading, and what is said of mistakes."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from art_cli import UsageError, play_episode
from art_cli.config.load import load_env
from art_cli.envs.registry import env_class
from art_cli.errors import ConfigError
from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.subject import Options
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.groups import scenarios_in
from art_cli.training.demonstrations import load_demonstrations
from art_envs.tasks import rows, scenarios
from art_envs.tasks.columns import said_in
from art_envs.tasks.env import Dataset
from art_envs.tasks.grading import is_right, last_number
from art_envs.tasks.settings import TaskSettings
from art_envs.tasks.splits import key_of

USE = "art_envs.tasks.env:Dataset"
ROWS = [{"question": f"What is {i} + {i % 7}?", "answer": i + i % 7} for i in range(120)]


def settings(**args: Any) -> TaskSettings:
    known = {"input": "question", "target": "answer", "grade": "number"}
    return TaskSettings(**known | args)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(text: str | list[Any], name: str = "tasks.jsonl") -> str:
        path = tmp_path / name
        if not isinstance(text, str):
            text = "".join(json.dumps(row) + "\n" for row in text)
        path.write_text(text, encoding="utf-8", newline="")
        return str(path)

    return write


def said(cfg: TaskSettings, answer: str, number: int = 0) -> float | None:
    scenario = list(Dataset.scenarios(cfg, "train"))[number]
    return play_episode(Dataset(scenario, cfg), lambda: answer).reward


def test_rows_of_jsonl_are_asked_and_graded(write: Any) -> None:
    cfg = settings(data=write(ROWS), system="Add.")
    scenario = next(iter(Dataset.scenarios(cfg, "train")))
    played = play_episode(Dataset(scenario, cfg), lambda: f"It is {scenario.data['targets'][0]}.")
    assert [m["role"] for m in played.messages] == ["system", "user", "assistant"]
    assert played.messages[1]["content"] == scenario.data["input"]
    assert (played.reward, played.metrics, played.stop_reason) == (1.0, {"success": 1.0}, "env")
    assert said(cfg, "no idea") == 0.0


def test_a_csv_has_records_of_several_lines(write: Any) -> None:
    lines = ["question,answer\r\n", *(f'"What, {i}\r\nor so?",{i}\r\n' for i in range(40))]
    cfg = settings(data=write("\ufeff" + "".join(lines), "tasks.csv"), val_share=0, test_share=0)
    first, second = list(Dataset.scenarios(cfg, "train"))[:2]
    assert first.data == {"targets": ["0"], "input": "What, 0\r\nor so?"}
    assert (first.id, second.id) == ("train-2", "train-4")  # where a record begins


@pytest.mark.parametrize("parts", [{"name": "tasks.tsv"}])
def test_a_tsv_has_tabs(write: Any, parts: Any) -> None:
    cfg = settings(
        data=write("question\tanswer\nWhat, now?\t1\n", **parts), val_share=0, test_share=0
    )
    assert [s.data["input"] for s in Dataset.scenarios(cfg, "train")] == ["What, now?"]


def test_parquet_and_the_hub_need_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    rows = {"question": [f"text {i}" for i in range(60)], "answer": [i % 2 for i in range(60)]}
    made = datasets.Dataset.from_dict(rows).cast_column("answer", label)
    (tmp_path / "set").mkdir()
    made.to_parquet(tmp_path / "set" / "train.parquet")
    plain = settings(data=str(tmp_path / "set" / "train.parquet"))
    assert {s.data["targets"][0] for s in Dataset.scenarios(plain, "train")} == {"0", "1"}
    hub = settings(data=f"hf:{tmp_path}/set", grade="choice")
    assert {s.data["targets"][0] for s in Dataset.scenarios(hub, "train")} == {"bad", "good"}
    with pytest.raises(UsageError, match=r'Unknown split "dev"'):
        list(Dataset.scenarios(replace(hub, data=f"{hub.data}::dev"), "train"))


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'art-cli\[data\]'"):
        list(Dataset.scenarios(settings(data="hf:a/b"), "train"))


WRONG = [
    ("tasks.jsonl", '{"question": "a", "answer": 1}\n\n{"question": "b"}\n', ":3: there is no col"),
    ("tasks.jsonl", '{"question": "a", "answr": 1}\n', r":1: .* Did you mean 'answr'\?"),
    ("tasks.jsonl", '{"question": "a", "answer": null}\n', ":1: 'answer' .* is empty"),
    ("tasks.jsonl", '{"question": "a", "answer": "none"}\n', ":1: the target 'none' cannot be gr"),
    ("tasks.jsonl", '{"question": "a", "answer": {"x": 1}}\n', ":1: .* is a dict, not text"),
    (
        "tasks.jsonl",
        '{"question": [{"role": "user"}], "answer": 1}\n',
        ":1: .*expected text, or me",
    ),
    ("tasks.jsonl", '[\n{"question": "a"}]\n', r":1: not valid JSON.*jq -c"),
    ("tasks.jsonl", '"a"\n', ":1: expected an object"),
    ("tasks.jsonl", "\n", "there are no rows"),
    ("tasks.json", "[]", r"expected a file whose name ends in \.jsonl"),
    ("tasks.csv", "question,answer\n1 + 1, or so,2\n", ":2: 3 fields, but 2 columns"),
    ("tasks.csv", 'question,answer\n"a "b" c",2\n', ':2: .*a " in it is written ""'),
    ("tasks.csv", "question;answer\n", ":1: .*semicolons"),
    ("tasks.csv", "question,question\n", ":1: the column 'question' is there twice"),
]


@pytest.mark.parametrize(("name", "text", "message"), WRONG)
def test_what_is_wrong_is_said_with_its_line(
    write: Any, name: str, text: str, message: str
) -> None:
    path = write(text, name)
    with pytest.raises(UsageError, match=message) as error:
        scenarios_in(Dataset, settings(data=path), "train")
    assert str(error.value).startswith(path)  # and not with where our code stands


def test_bytes_that_are_no_text_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_bytes(b'{"question": "a"}\n{"question": "\xff"}\n')
    with pytest.raises(UsageError, match=r"tasks.jsonl:2: not UTF-8"):
        list(Dataset.scenarios(settings(data=str(tmp_path / "tasks.jsonl")), "train"))
    with pytest.raises(UsageError, match=r"there is no file 'none\.csv'"):
        asyncio.run(check_env(Dataset, settings(data="none.csv")))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["grade=exact"], "grade: exact needs target"),
        (["target=a", "grade=exact", "tolerance=0.1"], "tolerance has no effect"),
        (["target=a", "grade=exact", "choices=[a,b]"], "choices has no effect"),
        (["target=a", "grade=exact", "answer=x"], r"expected \{answer\} once"),
        (["target=a", "grade=exact", 'answer="\\boxed{{answer}}"'], "single quotes"),
        (["target=a", "grade=exact", "val_share=0.5", "test_share=0.5"], "leave nothing"),
    ],
)
def test_settings_that_do_not_go_together(args: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_env(USE, ["data=x.jsonl", "input=q", *args], lambda use: env_class(use).Config)


def test_a_line_without_end_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MOST_CHARACTERS", 50)
    (tmp_path / "t.jsonl").write_text('{"q": "a"}\n{"q": "' + "a" * 99 + '"}\n')
    with pytest.raises(UsageError, match=r"t.jsonl:2: the line has more than 50 characters"):
        rows.read_rows(str(tmp_path / "t.jsonl"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_every_system_ends_them(tmp_path: Path, end: str) -> None:
    text = f"q,a{end}x\u2028y,1{end}z,2{end}"
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = rows.read_rows(str(tmp_path / "t.csv"))
    assert [r.values for r in found] == [{"q": "x\u2028y", "a": "1"}, {"q": "z", "a": "2"}]
    assert [r.number for r in found] == [2, 3]


def test_reading_many_rows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(rows, "TOLD", 2)
    monkeypatch.setattr(rows, "tell", lambda text, *_: told.append(text))
    (tmp_path / "t.jsonl").write_text('{"q": "a"}\n' * 5)
    assert len(rows.read_rows(str(tmp_path / "t.jsonl"))) == 5
    assert [t.rpartition(", ")[2] for t in told] == ["40%", "80%"]


def test_a_hash_of_the_question_decides_what_is_held_out(write: Any) -> None:
    copies = [{"question": f"  what IS {i} + {i % 7}", "answer": i + i % 7} for i in range(120)]
    more = settings(data=write(ROWS[60:] + copies + ROWS[:60]))
    split_of = {}
    for split in ("train", "val", "test"):
        for scenario in Dataset.scenarios(more, split):
            key = key_of(scenario.data["input"])
            assert split_of.setdefault(key, split) == split
    fewer = settings(data=write(ROWS, "fewer.jsonl"))
    for split in ("train", "val", "test"):
        found = [key_of(s.data["input"]) for s in Dataset.scenarios(fewer, split)]
        assert found and {split_of[key] for key in found} == {split}


def test_keys_are_the_same_for_what_is_typed_otherwise() -> None:
    same = ["What's  Caf\u00e9?", "what\u2019s cafe\u0301", "WHAT'S (\uff23afe\u0301)"]
    assert len({key_of(text) for text in same}) == 1
    assert key_of("1 + 2") != key_of("1 + 3") and key_of("?!") != key_of("!?")


def test_a_column_says_the_split_and_train_gives_what_it_does_not_say(write: Any) -> None:
    rows = [row | {"part": "test" if i < 20 else "training"} for i, row in enumerate(ROWS)]
    cfg = settings(data=write(rows), split="part")
    found = {s: {x.id for x in Dataset.scenarios(cfg, s)} for s in ("train", "val", "test")}
    assert found["test"] == {f"test-{i + 1}" for i in range(20)}
    assert len(found["val"]) > 3 and len(found["val"]) + len(found["train"]) == 100
    rows[3]["part"] = "held"
    with pytest.raises(UsageError, match=r":4: 'part' is 'held'; expected train, val or test"):
        list(Dataset.scenarios(replace(cfg, data=write(rows)), "train"))


def test_rows_of_another_file_are_not_trained_on(write: Any, monkeypatch: Any) -> None:
    told: list[str] = []
    monkeypatch.setattr("art_envs.tasks.scenarios.tell", lambda text, *_: told.append(text))
    test = write(ROWS[:30], "test.jsonl")
    cfg = settings(data=write(ROWS), test_data=test, val_share=0.2)
    found = {s: list(Dataset.scenarios(cfg, s)) for s in ("train", "val", "test")}
    assert len(found["test"]) == 30 and len(found["train"]) + len(found["val"]) == 90
    assert any(f"left out, for they are held out too: {cfg.data}:" in text for text in told)


def test_a_split_without_rows_is_refused_before_anything_is_played(write: Any) -> None:
    cfg = settings(data=write(ROWS[:3]), test_share=0.0, val_share=0.001)
    with pytest.raises(UsageError, match=r"no row falls to val .*val_share=0\.001"):
        asyncio.run(check_env(Dataset, cfg))
    assert list(Dataset.scenarios(replace(cfg, val_share=0.0), "val")) == []
    with pytest.raises(UsageError, match="none to train on"):
        list(Dataset.scenarios(replace(cfg, val_share=0.999), "val"))


GRADED = [
    ("exact", "  New\u00a0York\n", ["New York"], True),
    ("exact", "new york", ["New York"], False),
    ("number", "7 times 6 is 42.", ["#### 42"], True),
    ("number", "42, not 43", ["42"], False),
    ("number", "$1,234.50 in all", ["1234.5"], True),
    ("number", "\u22123", ["-3"], True),
    ("number", "from 3-5", ["5"], True),
    ("number", "3/4 of it", ["0.75"], True),
    ("number", "1/0", ["0"], False),
    ("number", "1" * 20_000, ["1"], False),
    ("number", "nothing", ["0"], False),
    ("choice", "I'd say A, no: B.", ["B"], True),
    ("choice", "a or b", ["B"], False),
    ("choice", "It is Not Good", ["not good"], True),
    ("choice", "notable", ["no"], False),
    ("choice", "", ["B"], False),
    ("regex", " 12 kg\n", [r"\d+ ?kg"], True),
    ("regex", "it is 12 kg", [r"\d+ ?kg"], False),
    ("regex", "a" * 40 + "b", [r"(a+)+"], False),
]


@pytest.mark.parametrize(("grade", "text", "targets", "right"), GRADED)
def test_grading(grade: Any, text: str, targets: list[str], right: bool) -> None:
    choices = ["A", "B", "not good", "good", "no"]
    assert is_right(grade, text, targets, choices, 0.0) is right


def test_numbers_within_the_tolerance() -> None:
    assert is_right("number", "3.14", ["3.1416"], (), 0.01)
    assert not is_right("number", "3.1", ["3.1416"], (), 0.01)
    assert last_number("1,5 and 2e3") == 2000


@pytest.mark.parametrize(
    ("text", "answer", "part"),
    [
        ("so <answer>4</answer>, or <answer> 5 </answer>.", "<answer>{answer}</answer>", "5"),
        ("it is \\boxed{\\frac{1}{2}}.", "\\boxed{{answer}}", "\\frac{1}{2}"),
        ("####7\nbye", "#### {answer}", "7"),
        ("no mark", "#### {answer}", None),
        ("<answer>4", "<answer>{answer}</answer>", None),
        ("as it is", None, "as it is"),
    ],
)
def test_the_part_that_is_graded(text: str, answer: str | None, part: str | None) -> None:
    assert said_in(text, answer) == part


def test_an_answer_that_must_stand_in_its_place(write: Any) -> None:
    cfg = settings(data=write(ROWS), answer="<a>{answer}</a>")
    scenario = next(iter(Dataset.scenarios(cfg, "train")))
    right = scenario.data["targets"][0]
    played = play_episode(Dataset(scenario, cfg), lambda: right)
    assert (played.reward, played.metrics["has_answer"]) == (0.0, 0.0)
    [turn] = Dataset(scenario, cfg).gold() or ()
    assert turn == f"<a>{right}</a>" and said(cfg, turn) == 1.0


@pytest.mark.parametrize("target", [1, "1", "B", "blue"])
@pytest.mark.parametrize(
    "options", [["red", "blue"], {"text": ["red", "blue"], "label": ["A", "B"]}]
)
def test_options_are_shown_with_letters(write: Any, target: Any, options: Any) -> None:
    rows = [{"q": f"{i}?", "options": options, "a": target} for i in range(60)]
    args: Any = {"input": "q", "target": "a", "grade": "choice", "choices": "options"}
    cfg = settings(data=write(rows), **args)
    assert next(iter(Dataset.scenarios(cfg, "train"))).data["input"].endswith("?\nA. red\nB. blue")
    assert (said(cfg, "B"), said(cfg, "A")) == (1.0, 0.0)
    placed = replace(cfg, prompt="{{{choices}}} {q}")
    assert "{A. red\nB. blue} " in next(iter(Dataset.scenarios(placed, "train"))).data["input"]


def test_any_of_several_targets_and_columns_within_columns(write: Any) -> None:
    rows = [
        {"p": [{"role": "user", "content": f"hi {i}"}], "ref": {"truth": ["yes", "ja"]}}
        for i in range(60)
    ]
    cfg = settings(data=write(rows), input="p", target="ref.truth", grade="exact", system="Hm.")
    assert (said(cfg, "ja"), said(cfg, "yes"), said(cfg, "no")) == (1.0, 1.0, 0.0)


def test_the_judge_is_told_the_right_answer(write: Any) -> None:
    cfg = settings(data=write(ROWS), grade="judge")
    scenario = next(iter(Dataset.scenarios(cfg, "train")))
    played = play_episode(Dataset(scenario, cfg), lambda: "hm")
    assert played.reward is None
    assert played.judge_context == f"A right answer: {scenario.data['targets'][0]}"


def test_demonstrations_are_of_train_rows_and_solutions_come_first(write: Any) -> None:
    rows = [row | {"how": f"It is {row['answer']}."} for row in ROWS]
    cfg = settings(data=write(rows), solution="how")
    shown = load_demonstrations("env", Dataset, cfg, 5)
    train = {s.data["input"] for s in Dataset.scenarios(cfg, "train")}
    assert len(shown) == 5 and all(d[0]["content"] in train for d in shown)
    assert all(d[-1]["content"].startswith("It is ") for d in shown)


@pytest.mark.slow
@pytest.mark.parametrize("grade", ["number", "judge"])
def test_it_passes_every_check(write: Any, grade: Any) -> None:
    found = list(check(USE, Dataset, settings(data=write(ROWS), grade=grade), Options(episodes=4)))
    assert {f.status for f in found} == {"ok"} | ({"skipped"} if grade == "judge" else set())


@pytest.mark.slow
def test_a_pattern_has_no_perfect_player(write: Any) -> None:
    rows = [row | {"answer": rf"{row['answer']} ?k?g?"} for row in ROWS]
    cfg = settings(data=write(rows), grade="regex")
    found = {f.check: f for f in check(USE, Dataset, cfg, Options(episodes=2))}
    assert found["gold"].what == "gold() is None"


def test_mathematics_is_compared_by_value(write: Any) -> None:
    pytest.importorskip("math_verify")
    rows = [{"question": f"{i}/14?", "answer": rf"\frac{{{i}}}{{14}}"} for i in range(60)]
    cfg = settings(data=write(rows), grade="math", val_share=0, test_share=0)
    assert said(cfg, "So $\\frac{7}{14}$", 7) == said(cfg, "It is 0.5", 7) == 1.0
    assert said(cfg, "\\boxed{\\frac{1}{3}}", 7) == said(cfg, "((((", 7) == 0.0
    from art_envs.tasks.mathematics import _worker

    assert _worker._process
    _worker._process.kill()
    assert said(cfg, "$\\frac12$", 7) == 1.0  # with a new process


def test_spellings_of_one_option_count_as_one(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(scenarios, "tell", lambda *words: told.append(str(words[0])))
    labels = ["payment", "Payment", " shipping ", "shipping", "payment"]
    data = write([{"question": q, "answer": a} for q, a in zip("abcde", labels, strict=True)])
    cfg = settings(data=data, grade="choice", val_share=0, test_share=0)
    for number, label in enumerate(labels):
        assert said(cfg, label.strip().lower(), number) == 1.0
        assert said(cfg, "payment" if "ship" in label else "shipping", number) == 0.0
    found = next(iter(Dataset.scenarios(cfg, "train")))
    assert found.data["choices"] == ["payment", "shipping"]
    assert told[0].endswith("spelled in several ways, which count as one: 'Payment', 'payment'")


def test_rows_that_contradict_each_other_are_told(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(scenarios, "tell", lambda *words: told.append(str(words[0])))
    rows = [{"question": "a", "answer": 1}, {"question": "b", "answer": 2}]
    data = write([*rows, {"question": "A ", "answer": 3}, rows[1]])
    list(Dataset.scenarios(settings(data=data, val_share=0, test_share=0), "train"))
    assert (
        f"1 rows have another target than the same question before: {data}:1 and {data}:3" in told
    )


def test_all_rows_with_a_mistake_are_told_at_once(write: Any) -> None:
    data = write([{"question": f"q{i}", "answer": "none" if i % 2 else i} for i in range(40)])
    with pytest.raises(UsageError) as raised:
        scenarios_in(Dataset, settings(data=data), "train")
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines[:-1]] == [
        f"{data}:{n}" for n in range(2, 22, 2)
    ]
    assert lines[-1] == "... and 10 more of 40 rows"


def test_a_conversation_may_have_a_developer_and_parts(write: Any) -> None:
    content = [{"type": "text", "text": "What is "}, {"type": "text", "text": "1 + 1?"}]
    opening = [{"role": "developer", "content": "Add."}, {"role": "user", "content": content}]
    cfg = settings(data=write([{"question": opening, "answer": 2}]), val_share=0, test_share=0)
    [scenario] = Dataset.scenarios(cfg, "train")
    assert scenario.data["input"] == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "What is 1 + 1?"},
    ]


def test_true_is_right_as_python_writes_it() -> None:
    assert is_right("exact", "True", ["true"], (), 0.0)
    assert not is_right("exact", "True", ["false"], (), 0.0)
