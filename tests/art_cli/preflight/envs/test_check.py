"""`art envs check`: a good env passes, and each mistake is caught with its file and line."""

import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from cases import slow_but
from pydantic import BaseModel, Field

from art_cli.envs.base import Env
from art_cli.envs.registry import env_class, env_names
from art_cli.envs.tools import tool, tools_of
from art_cli.preflight.check_result import CheckResult
from art_cli.preflight.envs.check import CHECKS, check
from art_cli.preflight.envs.deadlines import check_deadlines
from art_cli.preflight.envs.duplicates import Known
from art_cli.preflight.envs.play import Played
from art_cli.preflight.envs.players import value_for
from art_cli.preflight.envs.subject import Options, Subject
from art_cli.types import Scenario, Trajectory

GOOD = '''
import asyncio, random, time
from dataclasses import dataclass, field
from itertools import islice
from art_cli import Done, Env, Scenario, ToolError, play, tool
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import seed_of

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
SHARED = []


class Task(Env):
    """Say the word that is in the box."""

    @dataclass(frozen=True)
    class Config:
        user: LLMConfig | None = None

    max_turns = 3
    tool_timeout = 0.5
    num_scenarios = {"train": 40, "val": 10, "test": 10}

    @classmethod
    def scenarios(cls, cfg, split):
        for i in range(cls.num_scenarios[split]):
            word = random.Random(f"{split}{i}").choice(WORDS)
            seed = seed_of(split, i)
            yield Scenario(id=f"{split}-{i}", split=split, seed=seed, data={"box": word})

    async def start(self):
        self.word, self.said = self.scenario.data["box"], None
        return f"Open box {self.scenario.id}."

    @tool()
    async def look(self, box: int = 0) -> str:
        """Look into a box."""
        return self.word

    async def reply(self, text):
        self.said = text
        return Done()

    async def score(self, trajectory):
        self.metrics["said"] = 1.0
        return float(self.said == self.word)

    async def close(self):
        pass

    def gold(self):
        yield '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
        yield self.word

    @classmethod
    def demonstrations(cls, cfg, num):
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            yield play(env, env.gold().__next__)
'''

RETURN_WORD = "        return self.word\n"
SAID = "self.said = text\n"
DRAWN = 'random.Random(f"{split}{i}")'
# check, what of the good env, what is there instead, where it must be found, what must be said
MISTAKES = {
    "random scenarios": ("scenarios", DRAWN, "random", "def scenarios", "at each call"),
    "a set as data": ("scenarios", '"box": word}', '"box": {word}}', "def scenarios", "plain JSON"),
    "one id twice": ("scenarios", 'id=f"{split}-{i}"', 'id=f"{i}"', "def scenarios", "'0' occurs"),
    "no scenarios": ("scenarios", '"train": 40', '"train": 0', "def scenarios", "no train"),
    "few scenarios": ("scenarios", '"train": 40', '"train": 4', "def scenarios", "only 4 train"),
    "seeded scenarios": (
        *("scenarios", "        for i in range", "        random.seed(1)\n        for i in range"),
        *("def scenarios", "changes the global generator of random"),
    ),
    "shared cases": (
        "splits",
        "seed=seed, data={",
        "seed=i, data={'i': i} or {",
        "def scen",
        "are in train too",
    ),
    "no description": (
        "tools",
        '        """Look into a box."""\n',
        "",
        "def look",
        "no description",
    ),
    "no type": ("tools", "box: int = 0", "box=0", "def look", "box has no type"),
    "any argument": ("tools", "box: int = 0", "**boxes: int", "def look", "cannot give **boxes"),
    "no schema": ("tools", "box: int = 0", "box: random.Random = 0", "class Task", "no schema"),
    "unfinished": (
        "demonstrations",
        "env.gold().__next__)",
        "env.gold().__next__)[:1]",
        "def demo",
        "end with",
    ),
    "held out": ("demonstrations", 'cfg, "train"), num', 'cfg, "val"), num', "def demo", "'val-"),
    "a file elsewhere": (
        "files",
        "    async def close",
        "    def files(self):\n        return {'../a': ''}\n\n    async def close",
        "",
        "`..`",
    ),
    "files by chance": (
        "files",
        "    async def close",
        "    def files(self):\n        return {'a': str(random.random())}\n\n    async def close",
        "def files",
        "the second time",
    ),
    "a bug in a tool": (
        "bad answers",
        RETURN_WORD,
        "        return 1 // (box + 1)\n",
        "1 // (",
        "Zero",
    ),
    "a bug in reply": (
        "bad answers",
        SAID,
        "self.said = text\n        text[0]\n",
        "text[0]",
        "Index",
    ),
    "a bug in start": (
        "episodes",
        "self.said = self.s",
        "self.said = self.no.s",
        "self.no",
        "'no'",
    ),
    "no score": ("episodes", "float(self.said == self.word)", 'float("nan")', "def score", "nan"),
    "a bad metric": ("episodes", '["said"] = 1.0', '["said"] = "x"', "def score", "'x'"),
    "close fails": ("episodes", "        pass\n", "        1 / 0\n", "1 / 0", "ZeroDivision"),
    "luck in a tool": (
        "replay",
        RETURN_WORD,
        "        return str(random.random())\n",
        "def look",
        "look()",
    ),
    "time in start": ("replay", 'f"Open box', 'f"{time.time()}', "def start", "start()"),
    "hashes": ("replay", 'f"Open box', 'f"{hash(self.word)}', "def start", "in another process"),
    "a shared generator": (
        *(
            "randomness",
            "self.word, self.said =",
            "random.seed(self.scenario.seed); self.word, _ =",
        ),
        *("class Task", "playing changes the global generator of random, which all share"),
    ),
    "luck of the process": (
        *("randomness", "        return self.word\n", "        return str(random.random())\n"),
        *("def look", "of random, which all share, and goes by it: look() of"),
    ),
    "nothing accepted": (
        *("turns", RETURN_WORD, "        raise ToolError('box 7 is stuck')\n", "class Task"),
        "no turn of any player was ever accepted: all of",
    ),
    "a shared list": (
        "concurrency",
        SAID,
        SAID + "        SHARED.append(0)\n",
        "SHARED = ",
        "SHARED",
    ),
    "siblings' data": (
        *("concurrency", SAID, SAID + '        self.scenario.data["box"] = "x"\n'),
        *("class Task", "wrote to the data"),
    ),
    "a slow tool": (
        *("deadlines", RETURN_WORD, "        await asyncio.sleep(5)\n" + RETURN_WORD),
        *("def look", "within 0.5 s"),
    ),
    "blocking": ("deadlines", "        pass\n", "        time.sleep(0.3)\n", "time.sl", "held up"),
    "easy": ("easy rewards", "float(self.said == self.word)", "1.0", "def score", "saying nothing"),
    "words that are named": (
        *("exploits", "self.said == self.word", "self.word in str(self.said)", "def score"),
        "all answers at once earns 1.00, of the 1.00 of gold",
    ),
    "gold ends": ("gold", "        yield self.word\n", "", "def gold", "ended after 1 turns"),
    "gold is wrong": ("gold", "yield self.word", "yield 'x'", "def gold", "earns 0 in"),
}


class Address(BaseModel):
    """An argument with fields."""

    street: str
    number: int


def subject(folder: Path, *changes: tuple[str, str], **options: float) -> Subject:
    """The good env in a file, with some changes."""
    file, text = folder / "env.py", GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    env = env_class(f"{file}:Task")
    return Subject(f"{file}:Task", env, env.Config(), Options(**{"episodes": 2} | options))


def bad(results: list[CheckResult]) -> list[CheckResult]:
    return [f for f in results if f.status in ("failed", "warning")]


def test_a_good_env_passes_every_check(tmp_path: Path) -> None:
    s = subject(tmp_path)
    found = list(check(s.use, s.env_class, s.settings, s.options))
    assert [(f.check, f.status) for f in found] == [(name, "ok") for name in CHECKS]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught_with_its_place(tmp_path: Path, mistake: str) -> None:
    name, old, new, marker, says = MISTAKES[mistake]
    s = subject(tmp_path, (old, new))
    found = bad(list(CHECKS[name](s)))
    lines = (tmp_path / "env.py").read_text().splitlines()
    places = [f"{tmp_path / 'env.py'}:{n}" for n, line in enumerate(lines, 1) if marker in line]
    assert [f for f in found if f.where in places and says in f.what], found


@pytest.mark.slow
def test_what_never_comes_back_ends_the_check_where_it_stands(tmp_path: Path) -> None:
    stands = "        time.sleep(1.5)\n"
    metrics = "        self.metrics"
    s = subject(tmp_path, (metrics, stands + metrics), timeout=0.4)
    found = list(check(s.use, s.env_class, s.settings, s.options))
    (wrong,) = bad(found)
    line = 1 + (tmp_path / "env.py").read_text().splitlines().index(stands.rstrip())
    assert wrong.where.endswith(f"env.py:{line}") and "Task.score did not come back" in wrong.what
    assert {f.status for f in found[found.index(wrong) + 1 :]} == {"skipped"}


def test_a_model_that_may_be_null_is_left_out_and_another_skips_what_plays(tmp_path: Path) -> None:
    model = ("LLMConfig | None = None", "LLMConfig | None = LLMConfig(model='openai/x')")
    s = subject(tmp_path, model)
    assert s.settings.user is None and "user=null" in bad(list(CHECKS["settings"](s)))[0].what
    ask = "        self.services.llm(LLMConfig(model='x'))\n"
    s = subject(tmp_path, ("        self.word,", f"{ask}        self.word,"))
    found = {f.check: f.status for f in check(s.use, s.env_class, s.settings, s.options)}
    assert found["episodes"] == found["replay"] == found["gold"] == "skipped"


def test_without_gold_what_is_much_is_only_a_warning(tmp_path: Path) -> None:
    wrong = ("self.said == self.word", "self.said != self.word")
    s = subject(tmp_path, ("def gold", "def perfect"), ("env.gold", "env.perfect"), wrong)
    (*found,) = CHECKS["easy rewards"](s)
    assert {f.status for f in bad(found)} == {"warning"}
    assert "earns 1.00, of the best seen, 1.00 (means); the bound is 0.50" in found[0].what
    assert [f.status for f in CHECKS["gold"](s)] == ["skipped"]


def test_gold_is_played_where_there_is_one(tmp_path: Path) -> None:
    """Not a generator: it says before its episode begins whether it can play it."""
    head = "    def gold(self):\n"
    for some, status in (("train-", "ok"), ("test-", "skipped")):
        maybe = f"{head}        return self.turns() if {some!r} in self.scenario.id else None\n"
        s = subject(tmp_path, (head, f"{maybe}\n    def turns(self):\n"))
        assert [x.id for x in s.golden] == [x.id for x in s.chosen if some in x.id]
        (found,) = CHECKS["gold"](s)
        assert found.status == status and len(s.plays.get("gold", ())) == len(s.golden)


def test_an_env_without_a_score_of_its_own_is_not_blamed_for_it(tmp_path: Path) -> None:
    s = subject(tmp_path, ("float(self.said == self.word)", "None"))
    found = {f.check: f.status for f in check(s.use, s.env_class, s.settings, s.options)}
    assert found == dict.fromkeys(CHECKS, "ok") | dict.fromkeys(
        ("easy rewards", "gold", "exploits"), "skipped"
    )


def test_a_reply_that_is_always_the_same_accepts_nothing(tmp_path: Path) -> None:
    deaf = ("        return Done()\n", "        return 'what?'\n")
    s = subject(tmp_path, deaf, ("    @tool()\n", ""))
    (words,) = bad(list(CHECKS["turns"](s)))
    assert "whatever is said is answered by 'what?'" in words.what
    assert [f.status for f in CHECKS["turns"](subject(tmp_path, deaf))] == ["ok"]  # it can look


def test_an_answer_at_the_same_place_of_all_prompts_is_a_hint(tmp_path: Path) -> None:
    where = 'f"Open box {self.scenario.id}."'
    for prompt, says in (
        ('f"Open box {self.scenario.id}. (word: {self.word})"', "after the same word .* 'word "),
        ("""'Say {"word": "%s"}' % self.word""", ""),  # quoted, but after the same word
        ('f"Which one? {WORDS}"', None),  # the options
    ):
        s = subject(tmp_path, (where, prompt), episodes=8)
        found = list(CHECKS["prompt"](s))
        assert [f.status for f in found] == ["ok"] if says is None else found[0].status == "warning"
        assert re.search(says or "", found[0].what) and len(s.golden) == 8
    call = '{"box": 0, "really": true}'
    look = '"look", "arguments": {}'
    changes = (where, f"'Open it by {call}'"), (look, f'"look", "arguments": {call}')
    found = next(iter(CHECKS["prompt"](subject(tmp_path, *changes))))
    assert found.status == "warning" and "as gold calls with them (2 of 2 episodes)" in found.what


def test_tools_that_an_episode_gives_are_counted(tmp_path: Path) -> None:
    own = """
    def tools(self):
        return [*super().tools(), Tool(name="a b", description="", parameters={}),
                Tool(name="a-b", description="c", parameters={
                    "type": "object", "properties": {"ids[]": {}, "x-y": {}}})]
"""
    base = ("class Task(Env):", "from art_cli import Tool\n\n\nclass Task(Env):")
    s = subject(tmp_path, base, ("    def gold", f"{own}\n    def gold"))
    *wrong, count, api, python = CHECKS["tools"](s)
    assert count.what == "3 in an episode: look, a b, a-b"
    assert {f.status for f in (count, api, python)} == {"ok"}
    assert api.what == "names that a model behind an API knows: a_b for a b, a-b(ids for ids[])"
    arguments = "a_b_2(ids for ids[], x_y for x-y)"
    assert python.what.endswith(f"in Python knows: a_b for a b, a_b_2 for a-b, {arguments}")
    assert {f.status for f in wrong} == {"warning"}
    assert [f.what.partition(":")[2].strip()[:14] for f in wrong] == [
        *("a name is not ", "no description", "the parameters")
    ]


def test_a_server_without_room_is_no_shared_state(tmp_path: Path) -> None:
    opens = """
        SHARED.append(0)
        if len(SHARED) > 4:
            raise RuntimeError("server at capacity (4/4 sessions active)")
        self.word,"""
    changes = ("        self.word,", opens), ("        pass\n", "        SHARED.pop()\n")
    (found,) = bad(list(CHECKS["concurrency"](subject(tmp_path, *changes))))
    assert found.status == "warning" and "episodes at once were refused: 'server at" in found.what
    assert "env: {concurrency: 1}" in found.todo
    s = subject(tmp_path, *changes, concurrency=4)
    assert bad(list(CHECKS["concurrency"](s))) == []


@pytest.mark.parametrize(
    ("does", "what"),
    [
        ('os.environ["BOX"] = self.word', "os.environ['BOX'] changed"),
        ("os.chdir(tempfile.mkdtemp(dir=os.getcwd()))", "the working folder changed"),
    ],
)
def test_what_a_process_has_one_of_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOX", "before")
    begins = "        self.said = text\n"
    change = begins, f"{begins}        import os, tempfile\n        {does}\n"
    (found,) = bad(list(CHECKS["concurrency"](subject(tmp_path, change))))
    assert found.status == "warning" and what in found.what


def test_a_semaphore_of_all_episodes_is_no_shared_state(tmp_path: Path) -> None:
    waits = "        async with SHARED:\n            await asyncio.sleep(0.001)\n"
    changes = (
        *(("SHARED = []", "SHARED = asyncio.Semaphore(1)"), (RETURN_WORD, waits + RETURN_WORD)),
        ("tool_timeout = 0.5", "tool_timeout = 60"),  # 36 in a row, on a machine that is busy
    )
    assert bad(list(CHECKS["concurrency"](subject(tmp_path, *changes)))) == []


def test_nearly_the_same_scenario_is_found_again() -> None:
    def asks(text: str, **more: object) -> Scenario:
        return Scenario(id=text, split="val", seed=1, data={"q": text, **more})

    question = "In which year did the first book by Ada Quill come out, if any was ever printed"
    known = Known([asks(question, answer=1929), asks("How many came before 1940, in all?")])
    for text in (question.upper() + "?!", f"Please: {question}", question[::1].replace(",", " ")):
        assert known.find(asks(text, answer=1929)), text
    assert not known.find(asks(question, answer=1930))
    assert not known.find(asks(question.replace("Ada", "Boris"), answer=1929))
    assert not known.find(asks("How many came before 1950, in all?"))
    assert not known.find(asks(f"{question} 2", answer=1929))


def test_random_arguments_are_those_that_a_schema_allows() -> None:
    class Tools(Env):
        @tool()
        def act(
            self,
            kind: Literal["a", "b"],
            sizes: list[Annotated[int, Field(ge=3, lt=5)]],
            share: Annotated[float, Field(gt=0, le=1)] | None,
            address: Address,
            really: bool = False,
        ) -> str:
            """Act."""
            return ""

    spec, rng = tools_of(Tools)["act"], random.Random(0)
    schema = spec.schema()["function"]["parameters"]
    for _ in range(200):
        assert spec.parse(value_for(schema, rng, ["x", "4"]))


DESKS = ("airline", "retail", "retail_dual")  # which generate a thousand scenarios first
# In tests/integration/adapters; openapi needs a server: tests/envs/test_openapi_tools.py.
ELSEWHERE = ("inspect_ai", "openapi", "openenv", "tau2", "verifiers")
SHIPPED = slow_but(("order_desk", "nim", "mcp"), sorted(set(env_names()) - set(ELSEWHERE)))
CONFIGS = Path(__file__).parents[4] / "configs"
TASKS = {"target": "answer", "input": "question", "val_share": 0.2, "test_share": 0.2}
SERVER = f"{{python}} {CONFIGS / 'library' / 'mcp_server.py'}"
SETTINGS = {  # of those that play what another library, a file or a server has
    "dataset": {"data": str(CONFIGS / "library" / "tasks.jsonl"), "grade": "number"} | TASKS,
    "gymnasium": {"id": "Taxi-v4"},
    "mcp": {"command": SERVER, "shared": True, "data": str(CONFIGS / "library" / "tasks.jsonl")}
    | {"grade": "number"}
    | TASKS,
    "reasoning_gym": {"dataset": "syllogism"},
    "textarena": {"id": "TicTacToe-v0"},
}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_env_that_we_ship_passes(name: str) -> None:
    if name in SETTINGS and name != "dataset":
        pytest.importorskip(name, reason=f"pip install 'art-cli[{name.replace('_', '-')}]'")
    env = env_class(name)
    settings = env.Config(**SETTINGS.get(name, {}))
    found = list(check(name, env, settings, Options(episodes=8)))
    assert [f for f in found if f.status in ("failed", "warning")] == []


def test_a_call_that_is_slow_in_a_later_episode_is_told() -> None:
    desk = env_class("order_desk")
    scenario = Scenario(id="s", split="train", seed=0, data={})
    late = 0.9 * desk.tool_timeout
    plays = [
        Played(trajectory=Trajectory(scenario=scenario), slowest={"tool look()": seconds})
        for seconds in (0.1, late, 0.2)
    ]
    subject: Any = SimpleNamespace(env_class=desk, plays={"random": plays}, late=[], stalled=[])
    subject.play = lambda *_: plays[1]
    slow, summary = check_deadlines(subject)
    assert f"tool look() took {late:.1f} s" in slow.what
    assert f"the slowest call was tool look(), {late:.3f} s" in summary.what
    subject.play = lambda *_: plays[2]  # played again, it is not slow
    (summary,) = check_deadlines(subject)
    assert summary.status == "ok"
