"""The vLLM command that would serve the base."""

from __future__ import annotations

import shlex

from transformers import PreTrainedConfig

from art_cli.config.sections.engine import EngineConfig
from art_cli.engines.vllm.server import flags_of, options_of
from art_cli.preflight.base_model import longest_of
from art_cli.preflight.certify.specimen import Specimen


def vllm_command(base: str, config: PreTrainedConfig, specimen: Specimen) -> str:
    """Return the command for a config whose engine section only says `use: vllm`."""
    longest = longest_of(config)
    default = EngineConfig(use="vllm")
    length = min(default.max_model_len, longest or default.max_model_len)
    cfg = EngineConfig(use="vllm", max_model_len=length)
    options = options_of(specimen.policy, cfg) | {"model": base, "dtype": "bfloat16"}
    return shlex.join(["vllm", "serve", *flags_of(options)])
