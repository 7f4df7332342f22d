"""The table of SkyPilot's optimizer."""

import pytest

from art_cli.backends.cloud.plan import read_plan
from art_cli.errors import ArtError

TABLE = """Considered resources (2 nodes):
------------------------------------------------------------------------------------------------
 INFRA             INSTANCE             vCPUs   Mem(GB)   GPUS     COST ($)   CHOSEN
------------------------------------------------------------------------------------------------
 AWS (us-east-1)   p5.48xlarge[Spot]    192     2048      H100:8   1,035.20      \x1b[32m   ✔\x1b[0m
 AWS (us-west-2)   p5.48xlarge          192     2048      H100:8   110.08
------------------------------------------------------------------------------------------------
"""


def test_the_chosen_row_is_the_plan() -> None:
    plan = read_plan(TABLE)
    assert (plan.infra, plan.cloud, plan.usd_per_hour) == ("AWS (us-east-1)", "aws", 1035.2)
    assert plan.is_spot and "\x1b" not in plan.table and "us-west-2" in plan.table


def test_another_table_is_no_price() -> None:
    with pytest.raises(ArtError, match="so there is no price"):
        read_plan("Considered resources\nnothing")
