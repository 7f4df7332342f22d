"""The end of an episode as reported by an agent that outlives it: in a service's response or POST,
or on the output of a persistent program.

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

SHOWN = 4000  # characters of all its logs that are stored, from the end

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$", max_length=100)]
_Number = Annotated[float, Field(allow_inf_nan=False)]


class AgentEnd(BaseModel):
    """An agent's report of the end of an episode. Every key is optional."""

    model_config = ConfigDict(extra="forbid")
    answer: str | None = None  # its final text, if that is not the policy's last turn
    reward: _Number | None = None  # the agent's own; `reward.agent` is its weight
    metrics: Annotated[dict[_Name, _Number], Field(max_length=64)] = Field(default_factory=dict)
    logs: Annotated[list[Any], Field(max_length=1000)] = Field(default_factory=list)  # or events
    error: str | None = None  # the agent failed, for this reason

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Parse the body of a report. An empty body only says that the episode is over.

        Raises RequestError, which lists the mistakes.
        """
        return read_as(cls, body) if body.strip() else cls()

    def record(self, trajectory: Trajectory) -> None:
        """Store the reward, metrics and logs of the report in the trajectory."""
        if self.reward is not None:
            trajectory.reward_parts.agent = self.reward
        for name, value in self.metrics.items():
            trajectory.metrics[f"agent_{name}"] = value
        if self.logs:
            said = "\n".join(x if isinstance(x, str) else f"{x}" for x in self.logs)
            trajectory.logs.append(f"the agent said:\n{mask_keys(storable(said))[-SHOWN:]}")


def not_counted(told: bool) -> RequestError:
    """Return the error for an end that does not count: it is the second, or it came too late."""
    if told:
        text = "the end of this episode was told before, and counted; this one is not"
        return RequestError(409, text, "already_counted")
    text = "the episode was over before its end was told, which is not counted"
    return RequestError(409, text, "episode_over")
