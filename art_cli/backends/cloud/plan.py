"""Rental plans and clusters. Plans are parsed from the optimizer's table, its only output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from art_cli.errors import ArtError

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
COLUMN = re.compile(r"\s{2,}")
CHOSEN = "✔"


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalPlan:
    """The machines that SkyPilot's optimizer chose."""

    table: str  # all considered machines, as shown by SkyPilot
    infra: str  # "AWS (us-east-1)"
    is_spot: bool
    usd_per_hour: float  # of all nodes

    @property
    def cloud(self) -> str:
        """The first word of `infra`: aws, slurm, ..."""
        return self.infra.split()[0].lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster, shown as one line of `art clusters`."""

    name: str
    state: str  # INIT, UP or STOPPED
    resources: str
    infra: str
    since: datetime
    autostop_minutes: int | None
    usd: float  # so far
    accelerators: dict[str, float] | None  # of each node

    @property
    def is_up(self) -> bool:
        """True if jobs can be submitted."""
        return self.state == "UP"


def read_plan(printed: str) -> RentalPlan:
    """Parse the plan from the optimizer's output. Raises ArtError if there is none."""
    table = COLOURS.sub("", printed).strip()
    lines = [line.strip() for line in table.splitlines()]
    head = next((line for line in lines if "INFRA" in line and "COST ($)" in line), None)
    row = next((line for line in lines if line.endswith(CHOSEN)), None)
    if head is None or row is None:
        raise ArtError(f"SkyPilot's plan is not what was expected, so there is no price:\n{table}")
    names, cells = COLUMN.split(head), COLUMN.split(row)
    shown = dict(zip(names, cells, strict=False))
    return RentalPlan(
        table="\n".join(line.rstrip() for line in table.splitlines()),
        infra=shown["INFRA"],
        is_spot="[Spot]" in row,
        usd_per_hour=float(shown["COST ($)"].replace(",", "")),
    )
