"""Settings of a model on the command line are YAML 1.2, as those of a config."""

import pytest

from art_cli.config.targets import read_settings
from art_cli.errors import UsageError
from art_cli.evaluation.candidates import parse_llm


def test_a_value_of_the_command_line_is_yaml_1_2() -> None:
    found = parse_llm("openai/x,params.a=NO,params.b=12:30,params.c=2024-01-31,params.d=1e-5")
    assert found.params == {"a": "NO", "b": "12:30", "c": "2024-01-31", "d": 1e-5}
    with pytest.raises(UsageError, match="private"):
        read_settings("hf", {}, ["private=yes"])  # text, which is neither true nor false
