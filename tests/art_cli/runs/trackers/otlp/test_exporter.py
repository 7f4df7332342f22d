"""What a collector gets: a step as a tree of spans, by the conventions for generative AI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from loopback_otlp import LoopbackOtlp

pytest.importorskip("opentelemetry.exporter.otlp", reason="pip install 'art-cli[otlp]'")

from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.otlp.exporter import OtlpSink
from art_cli.runs.trackers.otlp.spans import Origin
from art_cli.types import Constrained, RewardParts, Scenario, Sequence, Trajectory, TrajectoryGroup

CFG = Experiment(
    project="shop",
    name="first",
    env=EnvConfig(use="order_desk"),
    model=ModelConfig(base="Qwen/Qwen3-8B"),
    sampling=SamplingConfig(max_tokens=4),
    train=TrainConfig(steps=2),
)
STEP = {"training_step": 4, "train/reward": 0.5}
EVALUATION = {"training_step": 4, "val/reward": 0.5}
CALL: Any = {"name": "look", "arguments": {"at": "ü"}}
SAID: list[Any] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "what is it?"},
    {"role": "assistant", "content": "<tool_call>", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "seven \ud800", "name": "look"},
    {"role": "tool", "content": "no", "name": "look", "is_error": True},
    {"role": "assistant", "content": "seven"},
]
MASK = [0] * 7 + [1, 0, 1] + [0] * 3 + [1] * 4  # the second token was forced by a grammar


def trajectory(reward: float | None = 1.0, number: int = 0, **more: Any) -> Trajectory:
    sequence = Sequence(ids=MASK, mask=MASK, engine_logprobs=[0.0] * len(MASK))
    known: dict[str, Any] = {
        "scenario": Scenario(id=f"train-{number}", split="train", seed=7),
        "messages": SAID,
        "sequences": [sequence],
        "policy_versions": [3, 4],
        "truncated": True,
        "logs": [],
        "metrics": {"words": 0.25},
        "reward_parts": RewardParts(env=0.25, explanation="it looked first"),
        "advantage": 0.5,
    }
    return Trajectory(reward=reward, **known | more)


class Sent:
    """A run directory with these groups as step 4, sent to a collector."""

    def __init__(self, folder: Path, collector: LoopbackOtlp, **more: Any) -> None:
        self.run = RunDir(folder / "runs" / "shop" / "first")
        self.run.trajectories.mkdir(parents=True)
        known: dict[str, Any] = {
            "endpoint": f"{collector.url}/v1/traces",
            "headers": {},
            "groups": None,
        }
        origin = Origin(experiment=CFG, run_id="first-1a2b")
        self.sink = OtlpSink(self.run, origin, **known | more)

    def step(self, *groups: list[Trajectory], row: Any = STEP, split: Any = "train") -> None:
        self.run.write_trajectories(4, split, [TrajectoryGroup(group) for group in groups])
        self.sink.take(row)


def test_a_step_is_a_tree_of_groups_episodes_turns_and_calls(tmp_path: Path) -> None:
    with LoopbackOtlp() as collector:
        failed = trajectory(
            None, error="KeyError: 'x'", traceback="Traceback ...", messages=SAID[:2]
        )
        Sent(tmp_path, collector).step([trajectory(), failed], [trajectory(0.0, 1)])
    [root] = collector.inside(None)
    assert root["name"] == "train step 4" and {s["trace"] for s in collector.spans} == {
        root["trace"]
    }
    assert root["resource"]["service.name"] == "art" and root["resource"]["art.run"] == "first"
    groups = collector.inside(root)
    assert [(g["name"], g["art.reward_mean"]) for g in groups] == [
        ("group train-0", 1.0),
        ("group train-1", 0.0),
    ]
    good, bad = collector.inside(groups[0])
    assert good["name"] == bad["name"] == "invoke_agent first"
    assert (good["art.reward"], good["art.advantage"], good["art.seed"]) == (1.0, 0.5, 7)
    assert (
        good["art.scenario"] == "train-0"
        and good["art.metrics.words"] == good["art.reward.env"] == 0.25
    )
    assert (good["art.step"], good["art.split"], good["art.group"]) == (4, "train", 0)
    about = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": 1.0}
    about["gen_ai.evaluation.explanation"] = "it looked first"
    assert good["events"] == [("gen_ai.evaluation.result", about)] and good["error"] is None
    assert bad["error"] == "KeyError: 'x'" and bad["error.type"] == "KeyError"
    assert bad["events"] == [] and "art.reward" not in bad and collector.inside(bad) == []
    names = [span["name"] for span in collector.inside(good)]
    turn, call = "chat Qwen/Qwen3-8B", "execute_tool look"
    assert names == [turn, call, call, turn]
    for span in collector.spans:
        assert root["begin"] <= span["begin"] < span["end"] <= root["end"]


def test_turns_and_calls_are_by_the_conventions(tmp_path: Path) -> None:
    with LoopbackOtlp() as collector:
        one = trajectory()
        one.sequences[0].constrained = [Constrained(begin=7, end=10, grammar="{}")]
        Sent(tmp_path, collector).step([one])
    agent = next(s for s in collector.spans if s.get("gen_ai.operation.name") == "invoke_agent")
    first, look, wrong, last = collector.inside(agent)
    for span in (first, look, wrong, last):
        assert span["gen_ai.conversation.id"] == "first-1a2b/train/4/0/0"
    assert first["kind"] == 3 and first["gen_ai.request.model"] == "Qwen/Qwen3-8B"
    used = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    assert [[span[key] for key in used] for span in (first, last)] == [[7, 3], [13, 4]]
    assert [s["gen_ai.response.finish_reasons"] for s in (first, last)] == [
        ["tool_call"],
        ["length"],
    ]
    assert [s["art.policy_version"] for s in (first, last)] == [3, 4]
    heard = json.loads(last["gen_ai.input.messages"])
    said = json.loads(first["gen_ai.output.messages"])
    assert [m["role"] for m in heard] == [m["role"] for m in SAID[:-1]]
    assert heard[0]["parts"] == [{"type": "text", "content": "Be kind."}]
    part = {"type": "tool_call", "id": "call-1", "name": "look", "arguments": {"at": "ü"}}
    assert said[0]["parts"][2] == part and said[0]["finish_reason"] == "tool_call"
    answer = {"type": "tool_call_response", "id": "call-1", "response": "no"}
    assert heard[4] == {"role": "tool", "parts": [answer]}
    assert json.loads(look["gen_ai.tool.call.arguments"]) == {"at": "ü"}
    assert look["gen_ai.tool.call.result"] == "seven ?" and look["gen_ai.tool.call.id"] == "call-0"
    assert wrong["error"] == "ToolError: no" and wrong["error.type"] == "ToolError"
    assert json.loads(agent["gen_ai.output.messages"])[0]["parts"][0]["content"] == "seven"
    assert len(json.loads(agent["gen_ai.input.messages"])) == 2


def test_a_call_that_ended_the_episode_is_there_without_a_result(tmp_path: Path) -> None:
    with LoopbackOtlp() as collector:
        Sent(tmp_path, collector).step([trajectory(messages=SAID[:4])])
    calls = [s for s in collector.spans if s["name"] == "execute_tool look"]
    assert ["gen_ai.tool.call.result" in call for call in calls] == [True, False]
    turns = [s for s in collector.spans if s["name"].startswith("chat")]
    assert "gen_ai.usage.input_tokens" not in turns[0], "two runs of tokens, and one turn"


def test_the_groups_with_the_widest_rewards_are_sent(tmp_path: Path) -> None:
    with LoopbackOtlp() as collector:
        sent = Sent(tmp_path, collector, groups=2)
        rewards = [(0.0, 0.0), (0.0, 1.0), (0.4, 0.6), (1.0, 1.0)]
        groups = [[trajectory(r, n) for r in rs] for n, rs in enumerate(rewards)]
        sent.step(*groups)
        names = [s["name"] for s in collector.spans if s["name"].startswith("group")]
        assert names == ["group train-1", "group train-2"]
        collector.spans.clear()
        held_out = [[trajectory(1.0, n)] for n in range(4)]
        sent.step(*held_out, row=EVALUATION, split="val")
        names = [s["name"] for s in collector.spans if s["name"].startswith(("group", "val"))]
    assert names == ["group train-0", "group train-1", "val step 4"], "those that compare"


def test_what_is_sent_again_is_the_same(tmp_path: Path) -> None:
    with LoopbackOtlp() as collector:
        sent = Sent(tmp_path, collector)
        sent.step([trajectory()])
        first, collector.spans = collector.spans, []
        sent.sink.take(STEP)
    assert collector.spans == first and len({s["id"] for s in first}) == len(first) == 7


def test_a_long_conversation_is_sent_in_parts_and_without_its_middle(tmp_path: Path) -> None:
    told: list[Any] = [{"role": "user", "content": "x" * 50_000}]
    talk = [m for _ in range(40) for m in (*told, {"role": "assistant", "content": "y" * 9_000})]
    with LoopbackOtlp() as collector:
        Sent(tmp_path, collector).step([trajectory(messages=talk)])
    assert len(collector.headers) > 3
    turns = [s for s in collector.spans if s["name"].startswith("chat")]
    last = json.loads(turns[-1]["gen_ai.input.messages"])
    assert len(turns) == 40 and max(len(t["gen_ai.input.messages"]) for t in turns) < 210_000
    assert "messages left out" in last[0]["parts"][0]["content"]
    assert "30000 characters left out" in last[-1]["parts"][0]["content"]


def test_headers_are_sent_and_a_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=another")
    with LoopbackOtlp() as collector:
        sent = Sent(tmp_path, collector, headers={"Authorization": "Bearer k"})
        sent.step([trajectory()])
        own = Sent(tmp_path / "own", collector, headers={"key": "k"}, own_headers_only=True)
        own.step([trajectory()])
        both, alone = collector.headers
        assert both["authorization"] == "Bearer k" and both["x-team"] == "another"
        assert alone["key"] == "k" and "x-team" not in alone
        assert alone["content-type"] == "application/x-protobuf"
        collector.says = 403
        with pytest.raises(ConnectionError, match="HTTP 403"):
            sent.sink.take(STEP)
    monkeypatch.setattr(sent.sink._exporter._client, "_timeout", 0.3)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:\d+ does not answer"):
        sent.sink.take(STEP)
