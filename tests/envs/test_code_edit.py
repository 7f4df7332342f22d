"""Mending programs: what is generated, its tools, its reward, and what does not earn it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from art_cli.config.load import load_experiment
from art_cli.envs.base import Done, ToolError
from art_cli.rollout.rollout import play
from art_cli.types import Scenario, Trajectory
from art_envs.code_edit import env as code_edit
from art_envs.code_edit import syntax
from art_envs.code_edit.env import CodeEdit
from art_envs.code_edit.faults import KINDS, cases, faults, is_right, module, same, wanted
from art_envs.code_edit.kinds import NAMES, PLACEHOLDER
from art_envs.code_edit.sandbox import pool
from art_envs.code_edit.sandbox.pool import Language, languages, run
from art_envs.code_edit.scenarios import SHOWN, generate, split_of

LANGUAGES: tuple[Language, ...] = ("python", "javascript", "bash")
LEVELS = (0, 1, 2, 3)
SPLITS = ("train", "val", "test")
CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> Language:
    if request.param not in languages():
        pytest.skip(f"this machine cannot run {request.param}")
    return request.param


def config(level: int, *only: Language) -> CodeEdit.Config:
    return CodeEdit.Config(level=level, languages=only or ("python",))


def some(level: int, num: int, *only: Language, split: Any = "train") -> list[Scenario]:
    return list(itertools.islice(CodeEdit.scenarios(config(level, *only), split), num))


def fresh(level: int = 1, i: int = 0, *only: Language) -> CodeEdit:
    return CodeEdit(some(level, i + 1, *only)[i], config(level, *only))


def reward(env: CodeEdit) -> float:
    return env.score(Trajectory(scenario=env.scenario))


def played(env: CodeEdit, turns: Iterable[str]) -> float:
    messages = play(env, iter(turns).__next__)
    return env.score(Trajectory(scenario=env.scenario, messages=messages))


def repair(env: CodeEdit) -> None:
    for one in env.repository["repairs"]:
        env.edit(**one)


def rewrite(env: CodeEdit, body: str) -> None:
    """Write a faulty Python function anew."""
    name = env.repository["repairs"][0]["symbol"]
    env.edit(symbol=name, old="", new=f"def {name}(*args):\n    {body}")


def a_function(level: int = 1) -> CodeEdit:
    """An episode whose fault is in a function, not in a class."""
    return next(
        env
        for env in (CodeEdit(s, config(level)) for s in some(level, 20))
        if env.repository["repairs"][0]["symbol"].islower()
    )


@pytest.mark.parametrize("level", LEVELS)
def test_gold_earns_one_and_idle_nothing(level: int, language: Language) -> None:
    for scenario in some(level, 4, language):
        env = CodeEdit(scenario, config(level, language))
        turns = env.gold()
        assert turns is not None and played(env, turns) == 1
        assert env.metrics["success"] == 1 and env.metrics["edits_refused"] == 0
        assert played(CodeEdit(scenario, config(level, language)), ["done"]) == 0


def test_all_right_sources_are_right_in_every_language(language: Language) -> None:
    for kind in KINDS.values():
        for source in kind.sources.get(language, ()):
            drawn = cases(kind)
            assert len(drawn) >= 12
            files = {f"m.{syntax.SUFFIX[language]}": module(language, source, ["f_"])}
            answers = run(language, files, [kind.call("m", "f_", one) for one in drawn]).answers
            for one, got in zip(drawn, answers, strict=True):
                assert is_right(language, wanted(kind, one), got), (kind.name, one, got)


def test_any_name_that_can_be_drawn_parses(language: Language) -> None:
    for kind in KINDS.values():
        for source in kind.sources.get(language, ()):
            names = dict.fromkeys(PLACEHOLDER.findall(f"{source} {kind.does}"))
            for i in range(3):
                pools = {n: kind.names if n == "f" else kind.own.get(n) or NAMES[n] for n in names}
                given = {name: pool[i % len(pool)] for name, pool in pools.items()}
                text = PLACEHOLDER.sub(lambda found, given=given: given[found[1]], source)
                assert syntax.broken_line(language, text) == 0, text


@pytest.mark.parametrize("level", LEVELS)
def test_a_hidden_test_fails_and_a_visible_one_where_the_level_says_so(
    level: int, language: Language
) -> None:
    for scenario in some(level, 5, language):
        data: Any = scenario.data
        answers = run(language, data["files"], [c["call"] for c in data["visible"]]).answers
        right = [
            is_right(language, c["want"], a) for c, a in zip(data["visible"], answers, strict=True)
        ]
        assert [not c["fails"] for c in data["visible"]] == right
        assert data["shown"].count(True) == SHOWN[level].count(True)
        assert all(right) == (True not in SHOWN[level])
        for one in data["repairs"]:
            hidden = [c for c in data["hidden"] if c["call"]["name"] == one["symbol"]]
            answers = run(language, data["files"], [c["call"] for c in hidden]).answers
            pairs = zip(hidden, answers, strict=True)
            assert not all(is_right(language, c["want"], a) for c, a in pairs)


def test_what_is_hidden_is_neither_visible_nor_one_answer() -> None:
    for scenario in some(2, 20):
        data: Any = scenario.data
        visible = [c["call"] for c in data["visible"]]
        assert all(c["call"] not in visible for c in data["hidden"])
        for name in {c["call"]["name"] for c in data["hidden"]}:
            own = [json.dumps(c["want"]) for c in data["hidden"] if c["call"]["name"] == name]
            assert len(set(own)) > 1


def test_no_fault_of_one_split_is_in_another(language: Language) -> None:
    by_split = {
        s: {f.content for f in faults(language) if split_of(f.content) == s} for s in SPLITS
    }
    assert all(len(found) > 10 for found in by_split.values())
    for one, two in itertools.combinations(by_split.values(), 2):
        assert not one & two


def test_no_program_of_level_0_is_in_two_splits() -> None:
    texts = {s: {json.dumps(x.data["files"]) for x in some(0, 200, split=s)} for s in SPLITS}
    for one, two in itertools.combinations(texts.values(), 2):
        assert not one & two


def test_scenarios_repeat_and_vary() -> None:
    found = list(itertools.islice(generate(3, LANGUAGES, "train"), 60))
    assert found == list(itertools.islice(generate(3, LANGUAGES, "train"), 60))
    assert {s.data["language"] for s in found} == set(LANGUAGES)
    whats = {what for s in found for what in s.data["kinds"]}
    assert {"operator", "off by one", "variable", "missing return"} <= whats
    every = {f.what for one in LANGUAGES for f in faults(one)}
    assert every >= {"default", "arguments swapped"}


def test_the_answer_is_not_in_what_is_read() -> None:
    env = fresh(1)
    hidden = [json.dumps(c["call"]["args"])[1:-1] for c in env.repository["hidden"]]
    read = [str(env.start()), env.list_files(), env.run_tests(), env.search("")]
    read += [env.read(path) for path in (*env.texts, *env._tests())]
    assert not any(call in text for call in hidden for text in read if len(call) > 8)


# ---- tools


def test_tools_show_files_symbols_and_lines() -> None:
    env = fresh(1)
    name = env.repository["repairs"][0]["symbol"]
    assert name in env.list_files() and "tests/" in env.list_files()
    assert env.read(name).startswith(("def ", "class "))
    path = next(p for p, text in env.texts.items() if name in text)
    assert f"{path}:" in env.search(name) and env.read(path) == env.texts[path]
    assert "no line has it" in env.search("there is no such text")


def test_tests_say_what_came_instead() -> None:
    env = fresh(1)
    before = env.run_tests()
    assert before.startswith("failed: ") and "should be" in before
    repair(env)
    num = len(env.repository["visible"])
    assert env.run_tests() == f"{num} of {num} tests passed"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"old": "no such node"}, "has no syntax node"),
        ({"old": "return"}, "has no syntax node|would not parse"),
        ({"old": "", "new": "def ("}, "would not parse any more, at line"),
        ({"symbol": "nothing"}, "there is no function or class 'nothing'"),
        ({"symbol": "tests/shop.txt"}, "the tests are right and cannot be edited"),
        ({"old": "", "new": "x" * 5000}, "too long"),
        ({"nth": 99}, "nth is 1 to"),
        ({"nth": 0}, "nth is 1 to"),
    ],
)
def test_an_edit_that_cannot_be_made_changes_nothing(arguments: dict[str, Any], why: str) -> None:
    env = fresh(1)
    given = dict(env.repository["repairs"][0]) | arguments
    with pytest.raises(ToolError, match=why):
        env.edit(**{"new": "(", **given} if given["old"] == "return" else given)
    assert env.texts == env.repository["files"]


def test_an_edit_is_of_one_node() -> None:
    text = "def f(a, b):\n    return a - b - a\n"
    assert syntax.edit("python", text, "f", "-", "+", 2) == text.replace("b - a", "b + a")
    assert "a * b" in syntax.edit("python", text, "f", "a - b", "a * b", 1)
    with pytest.raises(syntax.EditError):
        syntax.edit("python", text, "f", "b - a", "b", 1)  # not a node: (a - b) - a


def test_level_0_ends_with_the_first_edit() -> None:
    env = fresh(0)
    shown = str(env.start())
    assert "should be" in shown and "def " in shown
    assert isinstance(env.edit(**env.repository["repairs"][0]), Done) and reward(env) == 1


# ---- what earns nothing


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "print('all tests passed'); return None",
        'import os; os.write(3, b\'{"i": 0, "value": true}\\n\' * 99); os._exit(0)',
        "import sys; sys.modules['json'].dumps = lambda *a, **k: 'passed'; return 1",
        "import builtins; builtins.getattr = lambda *a: None",
        "class Same:\n        __eq__ = lambda *a: True\n    return Same()",
        "while True: pass",
        "while True: print('x' * 999)",
        "import os\n    while True: os.fork()",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import os; return open('/proc/' + str(os.getppid()) + '/mem', 'rb').read()",
        "import os; return [open(f).read() for f in os.listdir('/tmp')]",
        "import os, shutil; shutil.rmtree('..'); return 0",
        "import art_envs.code_edit.texts as t; return t",
    ],
)
def test_no_trick_earns_anything(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("art_envs.code_edit.sandbox.pool.CPU_SECONDS", 1)
    env = a_function()
    rewrite(env, body)
    assert reward(env) == 0
    assert "passed" in env.run_tests() and env.metrics["success"] == 0
    fixed = a_function()
    repair(fixed)
    assert reward(fixed) == 1  # nor does it harm what is run after it


def test_a_table_of_the_visible_answers_earns_nothing() -> None:
    env = a_function()
    name = env.repository["repairs"][0]["symbol"]
    table = [
        (c["call"]["args"], c["want"])
        for c in env.repository["visible"]
        if c["call"]["name"] == name
    ]
    rewrite(env, f"return next((want for given, want in {table!r} if given == list(args)), 0)")
    assert "failed" not in env.run_tests()
    assert reward(env) == 0 and env.metrics["only_visible"] == 1


def test_breaking_another_function_earns_nothing() -> None:
    env = a_function()
    repair(env)
    broken = env.repository["repairs"][0]["symbol"]
    path, other = next(
        (path, s.name)
        for path, text in env.texts.items()
        for s in syntax.symbols("python", text)
        if s.name != broken
    )
    env.edit(symbol=other, old="", new=f"def {other}(*args):\n    return 7")
    assert reward(env) == 0 and 0 < env.metrics["hidden_passed"] < 1 and path


def test_random_edits_earn_little() -> None:
    earned = []
    for i, scenario in enumerate(some(0, 60)):
        env = CodeEdit(scenario, config(0))
        env.edit(**env._guess(env.repository["repairs"][0], random.Random(i)))
        earned.append(reward(env))
    assert sum(earned) / len(earned) < 0.3


def test_answers_are_compared_strictly() -> None:
    assert same([1, {"a": None}], [1, {"a": None}]) and same(2, 2.0)
    assert not same(True, 1) and not same(0, False) and not same(None, 0)
    assert not same([1], [1, 2]) and not same({"a": 1}, {"b": 1}) and not same("1", 1)


# ---- machines without something


def test_a_language_that_cannot_be_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(code_edit, "languages", lambda: ("python",))
    monkeypatch.setattr(code_edit, "tell", told.append)
    found = some(1, 10, "python", "javascript")
    assert {s.data["language"] for s in found} == {"python"}
    assert told == ["left out, for this machine cannot run it: javascript"]
    with pytest.raises(ValueError, match="this machine cannot run javascript"):
        some(1, 1, "javascript")


def test_a_missing_parser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(syntax.SyntaxMissingError, match=r"pip install 'art-cli\[code\]'"):
        syntax.parser.__wrapped__("python")


@pytest.mark.parametrize("name", ["code-edit", "code-edit-tiny"])
def test_configs_load(name: str) -> None:
    assert load_experiment([CONFIGS / f"{name}.yaml"]).experiment.env.use == "code_edit"


@pytest.mark.slow
def test_a_program_that_closes_its_descriptors_and_sleeps_earns_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "WALL_SECONDS", 1.5)
    env = fresh()
    name = env.repository["repairs"][0]["symbol"]
    body = "import os, time\n    os.closerange(0, 64)\n    time.sleep(1000)"
    env.edit(name, "", f"def {name}(*args):\n    {body}")
    assert reward(env) == 0 and env.metrics["success"] == 0


def test_what_an_agent_changes_in_its_folder_is_scored(tmp_path: Path) -> None:
    env = fresh(1, 0, "python")
    env.start()
    for name, text in env.files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    env.workdir = tmp_path
    path = next(iter(env.texts))
    (tmp_path / path).write_text(env.texts[path] + "\n# by hand")
    assert env.read(path).endswith("# by hand")
    (tmp_path / path).unlink()
    (tmp_path / path).symlink_to("/etc/hosts")
    assert env.read(path).endswith("# by hand")
