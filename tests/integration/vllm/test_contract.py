"""vLLM keeps the contract of engines: real servers, on the CPU."""

from engine_contract import *  # noqa: F403
