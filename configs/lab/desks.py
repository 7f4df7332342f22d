"""The quickstart's order desk with other train scenarios, to try train.curriculum: docs/lab.md.

art compare "configs/quickstart.yaml env.use=configs/lab/desks.py:Broken" train.curriculum=signal
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from art_cli import Message, Scenario, Split, Trajectory
from art_envs.order_desk import OrderDesk


class Broken(OrderDesk):
    """Six in ten train scenarios earn nothing, whatever is done; their kind says so."""

    @classmethod
    def scenarios(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        """Those of the order desk, with a kind."""
        for i, scenario in enumerate(super().scenarios(cfg, split)):
            kind = "broken" if split == "train" and i % 10 >= 4 else "desk"
            yield replace(scenario, data=scenario.data | {"kind": kind})

    async def score(self, trajectory: Trajectory) -> float:
        """Return what the desk pays, or nothing."""
        earned = await super().score(trajectory)
        return 0.0 if self.scenario.data["kind"] == "broken" else earned


class Few(OrderDesk):
    """256 train scenarios: each is played again and again."""

    num_scenarios: ClassVar[dict[Split, int]] = {"train": 256, "val": 512, "test": 512}

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
        """Those of the order desk, of all its scenarios."""
        return OrderDesk.demonstrations(cfg, num)
