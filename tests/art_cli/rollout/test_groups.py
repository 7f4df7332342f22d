"""The scenarios of an env, before any of them is played."""

from typing import Any

import pytest

from art_cli.envs.base import Env
from art_cli.errors import UsageError
from art_cli.rollout.groups import scenarios_in
from art_cli.types import Scenario

CYCLE: dict[str, Any] = {}
CYCLE["itself"] = CYCLE


@pytest.mark.parametrize(
    ("data", "why"),
    [({(1, 2): 3}, "keys must be"), (CYCLE, "recursion"), ({"n": 10**5000}, "4300 digits")],
)
def test_data_that_no_file_can_hold_is_refused_before_the_first_rollout(
    data: dict[str, Any], why: str
) -> None:
    class Broken(Env):
        @classmethod
        def scenarios(cls, cfg: Any, split: str) -> list[Scenario]:
            return [
                Scenario(id="good", split="train", seed=1, data={"at": (1, None)}),
                Scenario(id="case-7", split="train", seed=1, data=data),
            ]

    with pytest.raises(UsageError, match="data of 'case-7' cannot be written") as raised:
        scenarios_in(Broken, None, "train")
    assert why in str(raised.value)
