"""The end of an episode, as an agent that outlives it tells it: in a service's answer or post, or
on a kept program's output.

{"answer": "It is sent.", "reward": 0.75, "metrics": {"steps": 4}, "logs": ["asked twice"]}
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from art_cli.keys import mask_keys
from art_cli.rollout.gateway.apis.request_body import read_as
from art_cli.rollout.gateway.asked import RequestError
from art_cli.system.untrusted import storable
from art_cli.types import Trajectory

SHOWN = 4000  # characters of all its logs that are kept, from the end

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$", max_length=100)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class AgentEnd(BaseModel):
    """The end of an episode as its agent tells it; every key may be left out."""

    model_config = ConfigDict(extra="forbid")
    answer: str | None = None  # what it says last, if that is not the policy's last turn
    reward: _Number | None = None  # its own; `reward.agent` says what it counts
    metrics: Annotated[dict[_Name, _Number], Field(max_length=64)] = Field(default_factory=dict)
    logs: Annotated[list[Any], Field(max_length=1000)] = Field(default_factory=list)  # or events
    error: str | None = None  # it failed, for this reason

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return what a body says; an empty one says that the episode is over, and no more.

        Raises RequestError, with the mistakes.
        """
        return read_as(cls, body) if body.strip() else cls()

    def record(self, trajectory: Trajectory) -> None:
        """Write down what it says beside the answer."""
        if self.reward is not None:
            trajectory.reward_parts.agent = self.reward
        for name, value in self.metrics.items():
            trajectory.metrics[f"agent_{name}"] = value
        if self.logs:
            said = "\n".join(x if isinstance(x, str) else f"{x}" for x in self.logs)
            trajectory.logs.append(f"the agent said:\n{mask_keys(storable(said))[-SHOWN:]}")


def not_counted(told: bool) -> RequestError:
    """Return what an agent hears that tells an end where one was `told`, or nobody waits for it."""
    if told:
        text = "the end of this episode was told before, and counted; this one is not"
        return RequestError(409, text, "already_counted")
    text = "the episode was over before its end was told, which is not counted"
    return RequestError(409, text, "episode_over")
