"""Plays stored actions with OpenEnv's own client, and prints what each episode comes to.

python openenv_scores.py PORT ACTIONS      a list of [seed, [action, ...]], JSON
"""

from __future__ import annotations

import asyncio
import json
import sys

from openenv.core.generic_client import GenericEnvClient


async def played(seed: int, actions: list[dict[str, str]]) -> float:
    """Return the sum of the rewards."""
    async with GenericEnvClient(base_url=f"http://127.0.0.1:{sys.argv[1]}") as client:
        await client.reset(seed=seed)
        total = 0.0
        for action in actions:
            result = await client.step(action)
            total += result.reward or 0.0
            if result.done:
                break
        return total


async def main() -> None:
    """Play them one after the other."""
    print(json.dumps([await played(seed, actions) for seed, actions in json.loads(sys.argv[2])]))


asyncio.run(main())
