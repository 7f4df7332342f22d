"""What the gateway costs a program beside the engine's own time. Needs no model and no network.

    python scripts/bench/gateway.py

256 episodes at once, each of 20 calls with tools and a history that grows, through a real socket;
their clients are a process of their own. The engine is a wait of about a second (0.5 to 1.5), so
that what is left of a call's time is the gateway, the socket and the client. Printed: the median
and the 95th percentile of that, for a single episode too; and whether any call was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from art_cli.config.schema import TinyConfig
from art_cli.models import tiny
from art_cli.models.render import Renderer
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.training.demonstrations import texts_of
from art_cli.types import Completion, Trajectory
from art_envs.order_desk import OrderDesk

EPISODES, CALLS = 256, 20
SHORTEST, LONGEST = 0.5, 1.5  # seconds of the engine
GOAL = 5.0  # ms, of the median
CALL = '{"name": "get_order", "arguments": {"order_id": "W4"}}'
SAYS = f"exchange delivered <tool_call>{CALL}</tool_call>"
RESULT = json.dumps({"order_id": "W4", "item": "mug", "in_stock": ["small"], "status": "pending"})


class Desk(OrderDesk):
    """Any number of calls."""

    max_turns = 10**6


@dataclass
class Waiting:
    """A Session that says one thing after a while."""

    ids: list[int]

    async def generate(self, ids: list[int], **_: Any) -> Completion:
        """See Session. The client cannot know how long this took, so it is told."""
        began = time.monotonic()
        await asyncio.sleep(random.uniform(SHORTEST, LONGEST))
        took = time.monotonic() - began
        logprobs = [-took] + [-0.1] * (len(self.ids) - 1)
        return Completion(
            token_ids=list(self.ids), logprobs=logprobs, finish_reason="stop", policy_version=0
        )

    def close(self) -> None:
        """See Session."""


@dataclass
class WaitingEngine:
    """An Engine of such sessions."""

    ids: list[int]
    policy_version: int = 0

    def open(self, seed: int, *, awaited: bool = True) -> Waiting:
        """See Engine."""
        return Waiting(self.ids)

    async def sync(self, version: int) -> None:
        """See Engine."""

    async def rest(self) -> None:
        """See Engine."""

    async def close(self) -> None:
        """See Engine."""


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=EPISODES)
    args = parser.parse_args()
    print("| episodes at once | calls | lost | median ms | 95% ms | CPU ms a call | goal |")
    print("|---|---|---|---|---|---|---|")
    for num in (1, args.episodes):
        over, lost, cpu = asyncio.run(measure(num))
        high = statistics.quantiles(over, n=20)[-1]
        print(
            f"| {num} | {len(over)} | {lost} | {1000 * statistics.median(over):.1f} "
            f"| {1000 * high:.1f} | {1000 * cpu / len(over):.1f} | {GOAL} |",
            flush=True,
        )


async def measure(num: int) -> tuple[list[float], int, float]:
    """-> seconds beyond the engine's of each call; calls without an answer; our CPU seconds."""
    played = OrderDesk.demonstrations(OrderDesk.Config(), 50)
    demonstrations = await asyncio.to_thread(list, played)  # it plays on a loop of its own
    _, tokenizer = tiny.make(TinyConfig(), texts_of(demonstrations, OrderDesk), 0)
    plain = Renderer(tokenizer)
    engine = WaitingEngine([*plain.encode(SAYS), *plain.encode(plain.end_of_turn)])
    gateway = Gateway(Served(engine, partial(Renderer, tokenizer), 10**6))
    await gateway.start()
    hosted = [await host(gateway, n) for n in range(num)]
    urls = [f"{gateway.url}{h.path}/v1/chat/completions" for h in hosted]
    tools = hosted[0].tools
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=clients, args=(urls, tools, queue), daemon=True)
    process.start()
    await asyncio.to_thread(queue.get, timeout=120)
    cpu = time.process_time()
    over, lost = await asyncio.to_thread(queue.get, timeout=600)
    cpu = time.process_time() - cpu
    process.join()
    await gateway.close()
    return over, lost + num * CALLS - len(over), cpu


async def host(gateway: Gateway, n: int) -> Hosted:
    """One episode of the order desk."""
    scenario = next(iter(OrderDesk.scenarios(OrderDesk.Config(), "train")))
    episode = Episode(Desk(scenario, OrderDesk.Config()), Trajectory(scenario=scenario))
    return gateway.open(episode, await episode.start(), n)


def clients(urls: list[str], tools: list[Any], queue: Any) -> None:
    """All episodes, in a process of their own."""
    queue.put("ready")
    queue.put(asyncio.run(_all(urls, tools)))


async def _all(urls: list[str], tools: list[Any]) -> tuple[list[float], int]:
    from aiohttp import ClientSession, TCPConnector

    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        results = await asyncio.gather(*(_one(session, url, tools) for url in urls))
    return [s for r in results for s in r if s is not None], sum(
        s is None for r in results for s in r
    )


async def _one(session: Any, url: str, tools: list[Any]) -> list[float | None]:
    await asyncio.sleep(random.uniform(0, LONGEST))
    messages: list[Any] = [{"role": "user", "content": "Please exchange my order W4."}]
    out: list[float | None] = []
    for _ in range(CALLS):
        body = json.dumps({"model": "m", "messages": messages, "tools": tools, "logprobs": True})
        began = time.monotonic()
        async with session.post(url, data=body) as answer:
            text, status = await answer.text(), answer.status
        took = time.monotonic() - began
        if status != 200:
            out.append(None)
            continue
        choice = json.loads(text)["choices"][0]
        out.append(took + choice["logprobs"]["content"][0]["logprob"])
        message = choice["message"]
        call = message["tool_calls"][0]["id"]
        messages += [message, {"role": "tool", "tool_call_id": call, "content": RESULT}]
    return out


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
