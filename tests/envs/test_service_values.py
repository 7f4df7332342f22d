"""When a value that is told is the right one, and sums."""

import pytest

from art_cli.envs.base import ToolError
from art_envs.service.arithmetic import calculated
from art_envs.service.values import is_value


@pytest.mark.parametrize(
    ("said", "value", "same"),
    [
        ("10", "10", True),
        ("$10.", "10", True),
        ("100", "10", False),
        ("10.50", "10", False),
        ("$1,250", "1250.00", True),
        ("1250 dollars", "1250.00", True),
        ("USD 12.50", "12.50", True),
        ("US$12.5", "12.50", True),
        ("12.50 US dollars", "12.50", True),
        ("**$12.50**", "12.50", True),
        ('"12.50".', "12.50", True),
        ("USD 12.50 or USD 13", "12.50", False),
        ("EUR 12.50", "12.50", False),
        ("1250.01", "1250.00", False),
        ("hat001", "HAT001", True),
        ("HAT0011", "HAT001", False),
        ("9, 10, 11", "10", False),
        ("9 or 10", "10", False),
        ("", "10", False),
        ("-10", "10", False),
    ],
)
def test_one_value_and_nothing_else(said: str, value: str, same: bool) -> None:
    assert is_value(said, value) is same


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1 + 2 * 3", "7.00"), ("-(10.10 - 0.10) / 4", "-2.50"), ("0.1 + 0.2", "0.30")],
)
def test_calculated(expression: str, value: str) -> None:
    assert calculated(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["1 +", "2 ** 9999", "a", "1 / 0", "0/0", "__import__('os')", "True", "(" * 90, "1" * 999, ""],
)
def test_what_is_no_sum_is_refused(expression: str) -> None:
    with pytest.raises(ToolError):
        calculated(expression)
