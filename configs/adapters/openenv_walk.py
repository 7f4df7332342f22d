"""A server of OpenEnv: a walk along a line to where one wants to be.

python openenv_walk.py PORT
"""

import random
import sys
from typing import Any, Literal

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Walk(Action):
    """Go a step."""

    direction: Literal["left", "right"]


class Place(Observation):
    """Where one is, and where one wants to be."""

    here: int
    goal: int


class Line(Environment):
    """Places from 0 to 9; a step costs a fiftieth."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Place:
        """Choose two places."""
        self.here, self.goal = random.Random(seed).sample(range(10), 2)
        self.steps = 0
        return Place(here=self.here, goal=self.goal, reward=0.0)

    def step(self, action: Walk, timeout_s: float | None = None, **more: Any) -> Place:
        """Go; the goal is worth 1."""
        self.here = max(0, min(9, self.here + (1 if action.direction == "right" else -1)))
        self.steps += 1
        done = self.here == self.goal
        return Place(here=self.here, goal=self.goal, reward=1.0 if done else -0.02, done=done)

    @property
    def state(self) -> State:
        """Return how many steps were made."""
        return State(step_count=self.steps)


if __name__ == "__main__":
    app = create_app(Line, Walk, Place, env_name="line", max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
