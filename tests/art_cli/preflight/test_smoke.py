"""`art run --smoke`: the same config, one step, no GPU, no network, no money."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from short_run import COLOURS, CONFIG
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.errors import AgentError, EnvError, UsageError
from art_cli.models.policy import Policy
from art_cli.runs.directory import RunDir

CONFIGS = Path(__file__).parents[3] / "configs"
FOR_CLUSTERS = ("cluster", "cluster-2x8x80gb")
FOR_GPUS = ("gpu-24gb", "gpu-80gb", "gpu-8x80gb", "retail-7b", "airline-14b", "2048-7b")
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584}
QWEN2 |= {"intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
QWEN2 |= {"num_key_value_heads": 4, "vocab_size": 152064, "layer_types": ["full_attention"] * 28}
Art = Callable[..., Result]


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Art]:
    """Run `art` in a folder with config.yaml; the hub is dead, and no key is set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path("config.yaml").write_text(CONFIG)
    yield lambda *words: CliRunner().invoke(app, list(words))


def smoke(art: Art, config: str, *words: str) -> dict[str, Any]:
    """What the run printed as JSON."""
    result = art("run", config, "--smoke", "--json", *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOR_CLUSTERS)
def test_a_config_for_a_cluster_is_tried_here_unless_it_is_sent(art: Art, name: str) -> None:
    ran = smoke(art, str(CONFIGS / f"{name}.yaml"))
    assert ran["finished"] and ran["smoke"]["odd"] == []
    sent = art("run", str(CONFIGS / f"{name}.yaml"), "--smoke", "--on", "a")
    assert isinstance(sent.exception, UsageError)


@pytest.mark.parametrize(
    "name", [FOR_GPUS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in FOR_GPUS[1:])]
)
def test_a_config_for_gpus_is_tried_in_seconds_on_a_cpu(art: Art, name: str) -> None:
    ran = smoke(art, str(CONFIGS / f"{name}.yaml"))
    assert (ran["run"], ran["step"], ran["finished"]) == (f"runs/default/{name}-smoke", 1, True)
    said = dict(line.split(": ", 1) for line in ran["smoke"]["tried"])
    judged = (
        {"judging"}
        if yaml.safe_load(Path(ran["run"], "config.yaml").read_text())["judge"]
        else set()
    )
    whole = {"env", "rendering", "update", "evaluation", "checkpoint"} | judged
    assert set(said) - {"gold"} == whole
    assert ran["smoke"]["odd"] == []
    assert any("the hub does not answer" in line for line in ran["smoke"]["not_tried"])
    run = RunDir(Path(ran["run"]))
    row = next(r for r in run.read_metrics() if "train/reward" in r)
    assert row["data/tokens_trained"] > 0 and row["loss/grad_norm"] > 0
    assert (run.checkpoint(1) / "adapter_model.safetensors").exists()


def test_the_base_s_family_tokenizer_and_template_are_used_where_they_are_at_hand(
    art: Art, make_policy: Callable[..., Policy]
) -> None:
    make_policy().tokenizer.save_pretrained("base")
    Path("base/config.json").write_text(json.dumps(QWEN2))
    ran = smoke(
        art, "config.yaml", "model={base: base, adapter: {rank: 4}, tiny: null}", "model.tiny={}"
    )
    config = json.loads(Path(ran["run"], "stand-in/config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"]) == ("qwen2", 2)
    assert config["vocab_size"] < 400 and len(config["layer_types"]) == 2
    files = [Path(folder, "tokenizer.json") for folder in ("base", f"{ran['run']}/stand-in")]
    mine, theirs = (json.loads(file.read_text())["model"] for file in files)
    assert (mine["vocab"], mine["merges"]) == (theirs["vocab"], theirs["merges"])
    assert any("its own chat template" in line for line in ran["smoke"]["tried"])
    assert any(line.startswith("base: a qwen2 of two") for line in ran["smoke"]["not_tried"])


def test_a_demonstration_that_is_too_long_for_the_engine_is_odd(
    art: Art, make_policy: Callable[..., Policy]
) -> None:
    make_policy().tokenizer.save_pretrained("base")
    Path("base/config.json").write_text(json.dumps(QWEN2))
    small = (
        "model={base: base, adapter: {rank: 4}, tiny: null}",
        "model.tiny={}",
        "engine.max_model_len=16",
        "sft=null",
    )
    ran = smoke(art, "config.yaml", *small)
    assert any("engine.max_model_len is 16" in line for line in ran["smoke"]["odd"])


@pytest.mark.slow
def test_a_smoke_run_is_replaced_by_the_next_but_no_other_run_is(art: Art) -> None:
    first = smoke(art, "config.yaml")["run"]
    Path(first, "left-over").touch()
    assert smoke(art, "config.yaml")["run"] == first and not Path(first, "left-over").exists()
    assert art("run", "config.yaml", "name=short-smoke", "train.steps=1", "eval=null").exit_code
    real = art("run", "config.yaml", "name=other-smoke", "train.steps=1", "eval=null")
    assert real.exit_code == 0
    result = art("run", "config.yaml", "name=other", "--smoke")
    assert isinstance(result.exception, UsageError)
    assert "a run that is not a smoke run, so it is not replaced" in str(result.exception)


def test_its_config_is_the_experiment_s_with_what_was_changed_in_the_open(art: Art) -> None:
    result = art("run", "config.yaml", "--smoke", "--dry-run", "train.loss=gspo")
    cfg = yaml.safe_load(result.stdout)
    assert cfg["name"] == "short-smoke" and cfg["train"]["loss"] == "gspo"
    assert (cfg["train"]["steps"], cfg["judge"]) == (1, None)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_nothing_of_what_costs_money_is_asked_and_no_secret_is_written(
    art: Art, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_BASE", "http://127.0.0.1:1/s3cret")
    judge = "judge={model: openai/o3, api_base: '${oc.env:SECRET_BASE}', max_usd: 5}"
    user = "env.args.user={model: openai/gpt-4.1, api_base: 'http://127.0.0.1:1/v1'}"
    words = ("reward={env: 1.0, judge: 0.3, gate: env}", user)
    ran = smoke(art, str(CONFIGS / "gpu-80gb.yaml"), judge, *words)
    written = Path(ran["run"], "config.yaml").read_text()
    assert "s3cret" not in written and "127.0.0.1:1" not in written
    assert {"the judge openai/o3: art validate --ping"} <= set(ran["smoke"]["not_tried"])
    assert any("env.args.user" in line for line in ran["smoke"]["not_tried"])
    played = RunDir(Path(ran["run"])).read_trajectories(1, "train")
    said = [m["content"] for t in played for m in t["messages"] if m["role"] == "user"]
    assert "That is all, thank you." in said or "Yes, please." in said


def test_one_s_own_agent_is_played_and_its_crashes_are_told(art: Art) -> None:
    agent = """
import itertools

num = itertools.count()


async def play(client, task):
    await client.chat.completions.create(model="policy", messages=task.messages)
    if next(num) % 2 or {always}:
        raise RuntimeError("there is a bug")
"""
    Path("agent.py").write_text(agent.replace("{always}", "False"))
    ran = smoke(art, "config.yaml", "agent={use: function, function: 'agent.py:play'}")
    assert "agent: your function, 4 times" in ran["smoke"]["tried"]
    assert any("there is a bug" in line for line in ran["smoke"]["odd"])
    Path("always.py").write_text(agent.replace("{always}", "True"))
    result = art(
        "run", "config.yaml", "--smoke", "agent={use: function, function: 'always.py:play'}"
    )
    assert isinstance(result.exception, AgentError) and "there is a bug" in str(result.exception)


def test_an_env_that_fails_in_every_episode_ends_it(art: Art) -> None:
    broken = """
class Broken(Opposites):
    async def score(self, trajectory):
        return 1 / 0

    @classmethod
    def demonstrations(cls, cfg, num):
        return list(Opposites.demonstrations(cfg, num))
"""
    Path("broken.py").write_text(COLOURS.read_text() + broken)
    result = art("run", "config.yaml", "--smoke", "env.use=broken.py:Broken")
    assert isinstance(result.exception, EnvError)
    assert "ZeroDivisionError" in str(result.exception)


def test_nobody_as_the_judge_of_a_real_run_is_warned_of(art: Art) -> None:
    words = ("sft=null", "eval=null", "train.steps=1", "judge={model: stand-in, cache: false}")
    result = art("run", "config.yaml", *words)
    assert result.exit_code == 0
    assert "judge.model=stand-in is nobody" in " ".join(result.output.split())


def test_it_begins_anew_and_so_cannot_be_resumed(art: Art) -> None:
    result = art("run", "config.yaml", "--smoke", "--resume")
    assert isinstance(result.exception, UsageError) and "--resume has no effect" in str(
        result.exception
    )


GOLD = """
class Solved(Opposites):
    paid = 1.0

    async def score(self, trajectory):
        return self.paid * await super().score(trajectory)

    def gold(self):
        while True:
            yield OPPOSITE[self.asked[-1]]

    @classmethod
    def demonstrations(cls, cfg, num):
        return list(Opposites.demonstrations(cfg, num))


class Underpaid(Solved):
    paid = 0.5


class Buggy(Solved):
    def gold(self):
        raise KeyError("no such colour")
"""


def test_gold_is_played_and_no_judge_is_asked_that_is_not_in_the_config(art: Art) -> None:
    Path("solved.py").write_text(COLOURS.read_text() + GOLD)
    result = art("run", "config.yaml", "--smoke", "env.use=solved.py:Solved")
    words = " ".join(result.output.split())
    assert result.exit_code == 0, (words, result.exception)
    assert "gold: the env's perfect player in 4 episodes, each earned 1" in words
    assert "asking the judge" not in words and "judging:" not in words and " odd " not in words
    assert words.endswith("next: art run config.yaml env.use=solved.py:Solved")
    run = RunDir(Path("runs/test/short-smoke"))
    row = next(r for r in run.read_metrics() if "train/reward" in r)
    assert row["loss/grad_norm"] > 0 and "judge/calls" not in row
    rewards = {t["reward"] for t in run.read_trajectories(1, "train")}
    assert rewards <= {0.0, 0.5, 1.0}  # never the made-up ones
    assert "not listed: 1 of art run --smoke" in art("runs").output
    assert "short-smoke" not in art("runs").output
    assert "short-smoke" in art("runs", "--smoke").output


@pytest.mark.parametrize(
    ("env", "said"), [("Underpaid", "gold() earns 0.5 in"), ("Buggy", "no such colour")]
)
def test_a_gold_that_fails_is_said_and_checked_next(art: Art, env: str, said: str) -> None:
    Path("solved.py").write_text(COLOURS.read_text() + GOLD)
    ran = smoke(art, "config.yaml", f"env.use=solved.py:{env}", "eval=null")
    [odd] = ran["smoke"]["odd"]
    assert said in odd and "solved.py:" in odd
    assert "perfect player does not earn it all" in ran["smoke"]["verdict"]
    assert ran["smoke"]["next"] == f"art envs check solved.py:{env}"
