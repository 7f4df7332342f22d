"""Measure RULER's own time beside the judge's. Needs no key and no network.

    python scripts/bench/judge.py

    wall     256 groups of 8 short trajectories against a loopback judge, a process of its own that
             takes 200 ms for each answer, 32 calls at once: seconds, and how many times the ideal
             (calls x latency / concurrency) that is
    own      CPU milliseconds a group of our own work (building, hashing, parsing): 8 trajectories
             of 20 turns, with an LLM that answers at once, in this process
    cached   `wall` again with the answers on disk: how many calls reached the judge

One question is asked before the clock starts, as every run does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from rule_based_judge import serve

from art_cli.config.sections.judge import JudgeConfig
from art_cli.llms.base import ChatMessage, Reply, Schema, Tools, Usage
from art_cli.llms.judges.base import Transcript
from art_cli.llms.judges.build import ask_once
from art_cli.llms.judges.cache import AnswerCache
from art_cli.llms.judges.ruler import Ruler
from art_cli.llms.remote import RemoteLLM

GROUPS, SIBLINGS = 256, 8
LATENCY, CONCURRENCY = 0.2, 32  # seconds, calls
TURNS = 20
ID = re.compile(r'"id": "(t-[0-9a-f]{16})"')
GOALS = {"wall": 1.25, "own": 5.0, "cached": 0}
TEXT = "the order was cancelled because it is pending and a refund will follow in five days"
WORDS = TEXT.split()


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--rounds", type=int, default=3, help="the median is printed")
    args = parser.parse_args()
    groups = [make_group(n, turns=1) for n in range(args.groups)]
    ideal = args.groups * LATENCY / CONCURRENCY
    count, port = start_judge()
    rows = [wall(groups, port, count) for _ in range(args.rounds)]
    seconds = statistics.median(r["seconds"] for r in rows)
    bare = statistics.median(r["bare_seconds"] for r in rows)
    cpu = statistics.median(r["bare_cpu"] for r in rows)
    own = statistics.median(own_work(n) for n in range(args.rounds))
    print("| what | measured | goal |\n|---|---|---|")
    print(
        f"| {args.groups} groups of {SIBLINGS}, {LATENCY * 1000:g} ms, {CONCURRENCY} at once: "
        f"{seconds:.2f} s, ideal {ideal:.2f} s | {seconds / ideal:.2f}x | {GOALS['wall']}x |"
    )
    print(f"| the same without the cache on disk | {bare / ideal:.2f}x | |")
    print(f"| CPU of this process a call, without it | {1000 * cpu / args.groups:.1f} ms | |")
    print(f"| own work a group of {SIBLINGS} x {TURNS} turns | {own:.2f} ms | {GOALS['own']} ms |")
    print(f"| calls of a cached run | {rows[-1]['again']} | {GOALS['cached']} |")
    print(f"| seconds of a cached run | {rows[-1]['again_seconds']:.2f} s | |")


def wall(groups: list[list[Transcript]], port: int, count: Any) -> dict[str, float]:
    """Judge all groups at once, twice with one cache."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_wall(groups, port, count, Path(folder)))


async def _wall(
    groups: list[list[Transcript]], port: int, count: Any, folder: Path
) -> dict[str, float]:
    base = f"http://127.0.0.1:{port}/v1"
    cfg = JudgeConfig(model="openai/loopback", api_base=base, concurrency=CONCURRENCY)
    llm = RemoteLLM(cfg)
    ruler, bare = Ruler(llm, cache=AnswerCache(folder)), Ruler(llm)
    await ask_once(ruler, [], [])
    before = count.value
    bare_seconds, bare_cpu = await timed(bare, groups)
    seconds, _ = await timed(ruler, groups)
    assert count.value - before == 2 * len(groups)
    again_seconds, _ = await timed(ruler, groups)
    await ruler.close()
    return {
        "seconds": seconds,
        "bare_seconds": bare_seconds,
        "bare_cpu": bare_cpu,
        "again": count.value - before - 2 * len(groups),
        "again_seconds": again_seconds,
    }


async def timed(ruler: Ruler, groups: list[list[Transcript]]) -> tuple[float, float]:
    """Seconds, and those of the CPU."""
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(ruler.judge(g) for g in groups))
    return time.monotonic() - began, time.process_time() - cpu


class AtOnce:
    """Implements LLM: knows its answer as soon as it has read the ids. Its own time is not ours."""

    name = identity = "at once"
    spent = 0.0
    max_input_tokens = 200_000
    takes_bounds = False

    def __init__(self) -> None:
        self.usage = Usage()
        self.seconds = 0.0

    async def ask(
        self, messages: list[ChatMessage], schema: Schema | None = None, tools: Tools = None
    ) -> Reply:
        """See LLM."""
        began = time.process_time()
        text = answer(messages[1]["content"])
        self.seconds += time.process_time() - began
        return Reply(text=text)

    async def close(self) -> None:
        """See LLM."""


def own_work(seed: int) -> float:
    """CPU milliseconds a group."""
    num = 100
    groups = [make_group(1000 * seed + n, TURNS) for n in range(num)]
    llm = AtOnce()
    ruler = Ruler(llm)

    async def one_by_one() -> None:
        for g in groups:
            await ruler.judge(g)

    began = time.process_time()
    asyncio.run(one_by_one())
    return 1000 * (time.process_time() - began - llm.seconds) / num


def answer(document: str) -> str:
    """Scores for all ids, by what the ids happen to be."""
    entries = [
        {"trajectory_id": id, "explanation": "because " * 20, "score": int(id[2:4], 16) / 255}
        for id in ID.findall(document)
    ]
    return json.dumps({"scores": entries})


def make_group(seed: int, turns: int) -> list[Transcript]:
    """Siblings of one scenario; a turn is some 400 characters: what is said, a call, its result."""
    rng = random.Random(seed)
    opening = [{"role": "system", "content": sentence(rng, 60)}, user(rng)]
    return [
        Transcript(
            messages=[*opening, *(m for _ in range(turns) for m in turn(rng))],
            tools=[{"name": "get_order", "description": sentence(rng, 20), "parameters": {}}],
            context=sentence(rng, 10),
        )
        for _ in range(SIBLINGS)
    ]


def turn(rng: random.Random) -> list[ChatMessage]:
    """An assistant's message with a call, and the tool's answer."""
    call = {"name": "get_order", "arguments": {"order": f"W{rng.randrange(10**6)}"}}
    text = f"{sentence(rng, 20)}<tool_call>{json.dumps(call)}</tool_call>"
    return [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "name": "get_order", "content": sentence(rng, 30)},
    ]


def user(rng: random.Random) -> ChatMessage:
    """The words of a customer."""
    return {"role": "user", "content": sentence(rng, 20)}


def sentence(rng: random.Random, num: int) -> str:
    """So many words."""
    return " ".join(rng.choices(WORDS, k=num))


def start_judge() -> tuple[Any, int]:
    """The number of requests so far, and the port of a judge in a process of its own."""
    context = multiprocessing.get_context("spawn")
    count, ports = context.Value("i", 0), context.Queue()
    context.Process(target=_serve, args=(count, ports), daemon=True).start()
    return count, ports.get(timeout=60)


def _serve(count: Any, ports: Any) -> None:
    def slow(request: dict[str, Any]) -> str:
        with count.get_lock():
            count.value += 1
        time.sleep(LATENCY)
        return answer(request["messages"][1]["content"])

    server = serve(slow, 0)
    ports.put(server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
