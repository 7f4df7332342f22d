"""`art eval` with models on loopback: its numbers, what it keeps, what it says of mistakes."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import Answer, Ask, LoopbackJudge, hanging, refused, says, scored
from quiz import NUM, PASSES, Player, Quiz
from spoken import call
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError, BudgetError, EnvError, PreflightError, UsageError
from art_cli.evaluation import policies

QUIZ = Path(Quiz.scenarios.__code__.co_filename)
CONFIG = f"""
project: test
name: quiz
env: {{use: "{QUIZ}:Quiz"}}
model: {{base: tiny}}
train: {{steps: 1}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quiz.yaml").write_text(CONFIG)
    return tmp_path


def art(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["eval", "quiz.yaml", *arguments])
    if isinstance(result.exception, ArtError):
        raise result.exception
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def evaluated(*arguments: str) -> dict[str, Any]:
    return json.loads(art(*arguments, "--json"))


def model(server: LoopbackJudge, name: str = "player", *more: str) -> list[str]:
    return ["--candidate", ",".join([f"openai/{name}", f"api_base={server.api_base}", *more])]


FREE = ("prices.input=0", "prices.output=0")


def test_pass_hat_k_is_what_it_is_in_closed_form(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server:
        row = evaluated(*model(server), "--trials", "4")["openai/player"]
    for k in range(1, 5):
        closed = sum(math.comb(c, k) / math.comb(4, k) for c in PASSES) / NUM
        found = row["metrics"][f"pass^{k}"]
        assert found["value"] == pytest.approx(closed)
        assert 0 <= found["low"] < closed < found["high"] <= 1
    assert row["metrics"]["reward"]["value"] == pytest.approx(sum(PASSES) / NUM / 4)
    assert (row["scenarios"], row["trials"], row["episodes"], row["failed"]) == (10, 4, 40, 0)
    assert row["metrics"]["tokens"]["value"] == 100 and row["metrics"]["turns"]["value"] == 1


def test_results_by_level_and_kind_are_those_of_their_scenarios(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server:
        row = evaluated(*model(server), "--trials", "4")["openai/player"]
        printed = art(*model(server), "--trials", "4")
    even = [c / 4 for n, c in enumerate(PASSES) if n % 2 == 0]
    assert row["by"]["level"]["0"]["pass^1"]["value"] == pytest.approx(sum(even) / len(even))
    assert row["by"]["kind"].keys() == {"a", "b", "c"}
    assert "pass^1 by level" in printed and "pass^1 by kind" in printed


def test_differences_are_paired_and_say_whether_they_exclude_0(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as weak, LoopbackJudge(then=Player(extra=2)) as strong:
        both = [*model(weak, "weak"), *model(strong, "strong"), "--trials", "4"]
        rows, printed = evaluated(*both), art(*both)
        other = evaluated(*both, "--baseline", "openai/strong")
    gain = sum(min(4, c + 2) - c for c in PASSES) / NUM / 4
    found = rows["openai/strong"]["difference"]["pass^1"]
    assert found["value"] == pytest.approx(gain) and found["low"] > 0
    assert rows["openai/weak"]["difference"] == {} and rows["openai/weak"]["baseline"] is None
    assert other["openai/weak"]["difference"]["pass^1"]["value"] == pytest.approx(-gain)
    line = next(
        x for x in printed.partition("difference to openai/weak")[2].splitlines() if "pass^1" in x
    )
    assert f"{gain:+.3f}" in line and "*" in line


def test_chance_says_what_is_demonstrated_and_loads_no_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "RunPolicies", None)
    row = evaluated("--candidate", "random")["random"]  # its only demonstration says yes
    assert row["metrics"]["reward"]["value"] == 1.0 and row["failed"] == 0
    told = [[{"role": "assistant", "content": call("answer", text=t)}] for t in ("yes", "no")]
    lines = [json.dumps({"messages": messages}) for messages in told]
    (folder / "told.jsonl").write_text("\n".join(lines))
    own = "sft={demonstrations: told.jsonl, weights: all}"
    row = evaluated(own, "--candidate", "random", "--trials", "16")["random"]
    assert row["metrics"]["reward"]["value"] == pytest.approx(0.5, abs=0.12)
    assert 0 < row["metrics"]["pass^2"]["value"] < 0.4  # drawn anew in each trial


def test_a_repeated_evaluation_asks_nobody_and_fresh_asks_again(folder: Path) -> None:
    player = Player()
    with LoopbackJudge(then=player) as server:
        first = evaluated(*model(server), "--trials", "2")
        asked = len(server.asked)
        assert evaluated(*model(server), "--trials", "2") == first
        assert len(server.asked) == asked
        evaluated(*model(server), "--trials", "4")  # two more of each
        assert set(player.played.values()) == {4}
        evaluated(*model(server), "--fresh")
        assert set(player.played.values()) == {5}
        evaluated(*model(server), "--trials", "4")  # what was known before is forgotten
        assert set(player.played.values()) == {8}


def test_another_setting_of_the_env_or_the_model_is_evaluated_anew(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server:
        evaluated(*model(server))
        once = len(server.asked)
        row = evaluated("env.args.wanted=no", *model(server))["openai/player"]
        assert len(server.asked) == 2 * once and row["metrics"]["pass^1"]["value"] > 0
        evaluated(*model(server, "player", "params.temperature=0"))
        assert len(server.asked) == 3 * once
        evaluated(*model(server, "player", "timeout=7"))  # how long it is waited for says nothing
        assert len(server.asked) == 3 * once


def test_a_torn_last_line_is_played_again(folder: Path) -> None:
    player = Player()
    with LoopbackJudge(then=player) as server:
        first = evaluated(*model(server))
        [file] = (folder / "runs/test/quiz/evaluations/attempts").iterdir()
        file.write_bytes(file.read_bytes()[:-30])
        again = evaluated(*model(server))
        assert again["openai/player"]["episodes"] == first["openai/player"]["episodes"] == NUM
        assert sum(player.played.values()) == NUM + 1
        evaluated(*model(server))
        assert sum(player.played.values()) == NUM + 1


def test_damaged_episodes_are_named_and_played_again_and_no_other(folder: Path) -> None:
    player = Player()
    with LoopbackJudge(then=player) as server:
        evaluated(*model(server))
        [file] = (folder / "runs/test/quiz/evaluations/attempts").iterdir()
        lines = file.read_bytes().splitlines()
        lines[2] = b"\xff\x00" + lines[2]
        lines[3] = lines[3][:-9]
        lines[4] = b"[1, 2]"
        lines[5] = lines[5].replace(b'"usd": 0.0', b'"usd": "0"')
        file.write_bytes(b"\n".join(lines) + b"\n")
        result = CliRunner().invoke(app, ["eval", "quiz.yaml", *model(server), "--json"])
    again = json.loads(result.stdout)["openai/player"]
    assert result.exit_code == 0 and again["episodes"] == NUM
    assert sum(player.played.values()) == NUM + 4
    places = [f"{file.name}:{n} is damaged" for n in (3, 4, 5)]
    for place in (*places, f"{file.name}: an episode whose usd is damaged"):
        assert place in result.stderr


def test_a_killed_evaluation_goes_on_where_it_was(folder: Path) -> None:
    player, killed, turn = Player(), threading.Event(), threading.Lock()

    def hangs_at_the_seventh(ask: Ask) -> Answer:
        with turn:
            answer = player(ask)
            slow = sum(player.played.values()) > 6 and not killed.is_set()
        return hanging(600)(ask) if slow else answer

    code = "from art_cli.cli.main import main; main()"
    attempts = folder / "runs/test/quiz/evaluations/attempts"
    with LoopbackJudge(then=hangs_at_the_seventh) as server:
        arguments = ["eval", "quiz.yaml", *model(server, "player", "concurrency=2")]
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=folder)
        deadline = time.monotonic() + 600
        while _num_kept(attempts) < 6 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.wait()
        killed.set()
        kept = list(player.played)[:6]
        row = evaluated(*model(server))["openai/player"]
        assert row["episodes"] == NUM == len(player.played)
        assert [player.played[episode] for episode in kept] == [1] * 6


def _num_kept(attempts: Path) -> int:
    files = attempts.iterdir() if attempts.exists() else ()
    return sum(len(f.read_text().splitlines()) - 1 for f in files)


def test_another_version_of_the_envs_code_is_evaluated_anew(folder: Path) -> None:
    (folder / "quiz.py").write_text(QUIZ.read_text() + "\nimport answers_of_quiz\n")
    (folder / "answers_of_quiz.py").write_text("RIGHT = 1\n")
    (folder / "quiz.yaml").write_text(CONFIG.replace(str(QUIZ), "quiz.py"))
    with LoopbackJudge(then=Player()) as server:
        evaluated(*model(server))
        asked = len(server.asked)
        (folder / "answers_of_quiz.py").write_text("RIGHT = 2\n")  # the env's file imports it
        evaluated(*model(server))
        assert len(server.asked) == 2 * asked


def test_failures_of_infrastructure_count_for_nobody(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server:
        rows = evaluated("env.args.breaks=val-4", *model(server))
        row = rows["openai/player"]
        assert (row["episodes"], row["failed"]) == (NUM - 1, 1)
        assert "LookupError: broken" in row["errors"][0]
        others = [c > 0 for n, c in enumerate(PASSES) if n != 4]
        assert row["metrics"]["pass^1"]["value"] == pytest.approx(sum(others) / len(others))


def test_a_candidate_that_never_answers_is_told_with_the_others_shown(folder: Path) -> None:
    first = [True]

    def dies(ask: Ask) -> Answer:
        if first and first.pop():
            return Answer(text="Hello.")
        return refused(400, "no luck")(ask)

    with LoopbackJudge(then=Player()) as good, LoopbackJudge(then=dies) as bad:
        arguments = [*model(good, "good"), *model(bad, "bad", "retries=0")]
        result = CliRunner().invoke(app, ["eval", "quiz.yaml", *arguments])
    assert isinstance(result.exception, EnvError) and "openai/good" in result.stdout
    assert "openai/bad: all 10 episodes failed" in str(result.exception)
    assert "no luck" in str(result.exception)


def test_without_a_score_a_judge_says_who_wins_against_the_baseline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    config = CONFIG.replace("Quiz", "Essay")
    weak, strong, judge = (
        LoopbackJudge(then=step) for step in (says("quality 0.3"), says("quality 0.8"), scored())
    )
    with weak, strong, judge:
        both = [*model(weak, "weak"), *model(strong, "strong")]
        (folder / "quiz.yaml").write_text(config)
        with pytest.raises(EnvError, match="let a judge give one"):
            evaluated(*both)
        section = f"judge: {{model: {judge.model}, api_base: '{judge.api_base}', retries: 0}}\n"
        (folder / "quiz.yaml").write_text(config + section)
        rows = evaluated(*both)
        assert len(weak.asked) == 1 + 4  # its episodes were kept, though nobody had scored them
        assert rows["openai/weak"]["metrics"]["reward"]["value"] == 0.5
        assert rows["openai/strong"]["metrics"]["pass^1"]["value"] == 1.0
        judged = len(judge.asked)
        assert evaluated(*both) == rows and len(judge.asked) == judged


def test_money_has_an_end_and_what_was_paid_for_is_kept(folder: Path) -> None:
    prices = ("prices.input=1000", "prices.output=0")  # a dollar a call on loopback
    player = Player()
    with LoopbackJudge(then=player) as server:
        limited = model(server, "player", *prices, "concurrency=1")
        with pytest.raises(BudgetError, match=r"--max-usd=5.5 is used up(.|\n)*4 of 10 episodes"):
            evaluated(*limited, "--max-usd", "5.5")
        row = evaluated(*limited)["openai/player"]
        assert sum(player.played.values()) == NUM
    assert row["usd"] == pytest.approx(NUM) and row["metrics"]["usd"]["value"] == pytest.approx(1)


def test_the_simulated_user_is_the_same_for_all_and_is_paid_for(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server:
        prices = "prices: {input: 500, output: 0}"
        user = f"{{model: openai/user, api_base: '{server.api_base}', {prices}}}"
        row = evaluated(f"env.args.user={user}", *model(server, "player", *FREE))["openai/player"]
        asked = [ask.body["model"] for ask in server.asked]
        assert row["usd"] == pytest.approx(0.5 * NUM) and asked.count("user") == NUM + 1
        with pytest.raises(BudgetError):
            limit = ("--max-usd", "2.2", "--fresh")
            evaluated(f"env.args.user={user}", *model(server, "player", *FREE), *limit)


def test_a_user_who_is_the_reference_meets_all_candidates(folder: Path) -> None:
    tiny = "{base: tiny, adapter: {rank: 2}, tiny: {hidden_size: 32, num_layers: 1}}"
    sections = ("engine.max_model_len=256", "sampling.max_tokens=4")
    with LoopbackJudge(then=Player()) as server:
        config = CONFIG.replace("{base: tiny}", tiny)
        (folder / "quiz.yaml").write_text(config)
        own = ("--candidate", "untrained", *sections, "env.args.user={model: reference}")
        rows = evaluated(*model(server), *own, "--episodes", "3")
        question = server.asked[1].messages[-1]["content"]
    assert not question.startswith("Question")  # the reference has spoken first
    assert rows["openai/player"]["episodes"] == rows["untrained"]["episodes"] == 3


def test_a_limit_without_prices_is_refused(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server, pytest.raises(PreflightError, match="no price"):
        art(*model(server), "--max-usd", "1")


def test_prompted_candidates_need_neither_torch_nor_a_model(folder: Path) -> None:
    code = (
        "import atexit, sys; from art_cli.cli.main import main; "
        "atexit.register(lambda: print({'torch', 'transformers', 'litellm'} & set(sys.modules))); "
        "main()"
    )
    with LoopbackJudge(then=Player()) as server:
        command = [sys.executable, "-c", code, "eval", "quiz.yaml", *model(server)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "set()" in done.stdout, done.stderr
    assert "pass^1" in done.stdout


AGENT = """
import json
async def play(client, task):
    answer = await client.chat.completions.create(
        model="any", messages=task.messages, tools=task.tools
    )
    for call in answer.choices[0].message.tool_calls:
        await task.call_tool(call.function.name, json.loads(call.function.arguments))
"""


def test_an_agent_of_ones_own_plays_with_a_model_in_the_policys_place(folder: Path) -> None:
    (folder / "agent.py").write_text(AGENT)
    own = ["agent.use=function", "agent.function=agent.py:play"]
    priced = ("prices.input=1", "prices.output=1", "params.max_tokens=200")
    with LoopbackJudge(then=Player()) as server:
        found = evaluated(*own, *model(server, "player", *priced), "--trials", "4")
        row = found["openai/player"]
        with pytest.raises(BudgetError):
            art(*own, *model(server, "player", *priced), "--fresh", "--max-usd", "0.002")
    assert row["metrics"]["reward"]["value"] == pytest.approx(sum(PASSES) / NUM / 4)
    assert row["failed"] == 0 and row["metrics"]["tokens"]["value"] == 100
    assert row["metrics"]["usd"]["value"] == pytest.approx(0.0011)


def test_a_threshold_on_the_reward_says_what_passes(folder: Path) -> None:
    with LoopbackJudge(then=Player()) as server:
        row = evaluated(*model(server), "--threshold", "0")["openai/player"]
    assert row["metrics"]["pass^1"]["value"] == 1.0 and row["success"] == "reward is at least 0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--candidate", "bset"], "there is no candidate 'bset'"),
        (["--candidate", "untraind"], "Did you mean 'untrained'?"),
        (["--candidate", "gpt-4.1"], "provider/model: openai/gpt-4.1"),
        (["--candidate", "base"], "there is no SFT, so `base` is the same as `untrained`"),
        (
            [f"env.use={QUIZ}:Essay", "--candidate", "random"],
            "random says turns of demonstrations, but Essay has no demonstrations",
        ),
        (
            ["agent={use: program, command: [x]}", "--candidate", "random"],
            "does not play through an agent (agent.use=program); leave it out",
        ),
        (["--candidate", "openai/x,timout=3"], "timout: unknown key. Did you mean 'timeout'?"),
        (
            ["--candidate", "openai/x,timeout=soon"],
            "timeout: expected a number of more than 0, got 'soon'",
        ),
        (["--candidate", "openai/x,prices.input=-1,prices.output=0"], "prices.input: must be at"),
        (["--candidate", "openai/x,params.api_key=abc"], "api_key_env=MY_KEY"),
        (["--candidate", "openai/x,api_base=http://me:abc@h/v1"], "api_key_env=MY_KEY"),
        (["--candidate", "openai/x,params.headers.Authorization=abc"], "api_key_env=MY_KEY"),
        (["--candidate", "openai/x,api_base=http://h/v1", "--baseline", "openai/y"], "openai/x'?"),
        (["--checkpoint", "last"], "there is no run yet"),
    ],
)
def test_mistakes_are_told(folder: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as e:
        art(*arguments)
    assert said in str(e.value) and e.value.exit_code == 2


def test_a_key_that_is_missing_is_told_before_anything_is_played(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with LoopbackJudge(then=Player()) as server:
        with pytest.raises(PreflightError, match="MY_KEY is not set"):
            art(*model(server), *model(server, "other", "api_key_env=MY_KEY"))
        assert len(server.asked) <= 1


def test_the_page_holds_every_conversation_and_no_markup_of_anyone(folder: Path) -> None:
    class Rude(Player):
        def __call__(self, ask: Ask) -> Answer:
            said = super().__call__(ask)
            return Answer(text="</script><img src=x>", calls=said.calls)

    with LoopbackJudge(then=Rude()) as server:
        art(*model(server), "--trials", "2", "--html", "page.html")
    html = (folder / "page.html").read_text()
    data, _, after = html.partition('id="data">')[2].partition("</script>")
    script = re.fullmatch(r"<script>(.*?)</script>.*", after, re.DOTALL)
    assert script and "<img" not in html and html.count("</script>") == 2
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'; " in html
    data = json.loads(data)
    assert [len(s["cells"][0]) for s in data["scenarios"]] == [2] * NUM
    attempt = data["attempts"][0]
    said = [(m["role"], data["texts"][m["content"]]) for m in attempt["messages"]]
    assert said[0][0] == "user" and said[1][1].startswith("</script><img src=x><tool_call>")
    assert sum(a["passed"] for a in data["attempts"]) == sum(min(2, c) for c in PASSES)
