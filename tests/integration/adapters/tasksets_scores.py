"""Plays stored answers through art's adapter, and has verifiers 0.4 score traces made by hand.

Run by an interpreter that has verifiers, with art and this folder on its path.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.graph import prepare_turn

from art_cli import play_episode
from art_envs.adapters.verifiers_env import Verifiers

ADD = {"name": "sum_add", "arguments": {"a": 1, "b": 7}}
CALL = f"<tool_call>{json.dumps(ADD)}</tool_call>"
RESULT = vf.ToolMessage(tool_call_id="0", content="8")
ASKED = [[vf.UserMessage(content=f"question {n}")] for n in range(3)]


def stored(kind: str, answer: str) -> list[tuple[list[str], list[list[vf.Message]]]]:
    """Return what is said in several episodes, and what is heard before each turn."""
    opening = [vf.UserMessage(content=f"What is {int(answer) - 7} + 7?")]
    if kind == "tools":
        return [
            ([CALL, f"so {answer}"], [opening, [RESULT]]),
            ([CALL * 2, "9999"], [opening, [RESULT, RESULT]]),
        ]
    if kind == "talk":
        said = [["a", "b", f"it is {answer}"], ["a", answer, "no"], ["a", answer]]
        return [(each, ASKED[: len(each)]) for each in said]
    return [([text], [opening]) for text in (answer, f"it is {answer}", "no", "")]


async def native(
    task: vf.Task, said: list[str], heard: list[list[vf.Message]]
) -> tuple[float, dict[str, float]]:
    """Return the reward and the metrics that verifiers gives."""
    about = vf.TraceTask(type="SumTask", data=task.data, key=task.key, hash=task.hash)
    agent = vf.AgentInfo(config=vf.AgentConfig())
    trace: Any = vf.Trace(task=about, state=vf.State(), agent=agent)
    messages: list[vf.Message] = []
    for text, before in zip(said, heard, strict=True):
        calls = [
            vf.ToolCall(id="0", name=ADD["name"], arguments=json.dumps(ADD["arguments"]))
            for _ in range(text.count(CALL))
        ]
        answer = vf.AssistantMessage(content=text.replace(CALL, ""), tool_calls=calls or None)
        messages += before
        prepare_turn(trace, list(messages), None).commit(
            vf.Response(id="", created=0, model="m", message=answer, finish_reason="stop")
        )
        messages.append(answer)
    await task.score(trace)
    rewards = {name: reward.score for name, reward in trace.rewards.items()}
    return trace.reward, rewards | trace.metrics


for kind, num in (("sums", 3), ("talk", 3), ("tools", 1)):
    args = {"taskset": {"task": {"kind": kind}}}
    cfg = Verifiers.Config(id="vf_tasksets", args=args)
    for scenario in list(Verifiers.scenarios(cfg, "train"))[:num]:
        task: Any = Verifiers(scenario, cfg).row
        for said, heard in stored(kind, task.data.answer):
            limits = {"max_turns": 2} if kind == "talk" and len(said) == 2 else {}
            one = Verifiers(scenario, Verifiers.Config(id="vf_tasksets", args=args, **limits))
            played = play_episode(one, iter(said).__next__)
            reward, metrics = asyncio.run(native(task, said, heard))
            print(json.dumps([kind, said, played.reward, reward, played.metrics, metrics]))
