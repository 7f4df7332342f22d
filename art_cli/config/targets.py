"""What each target of `art deploy` can be told: `deploy.args` in a config, or key=value words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.explain import read_into
from art_cli.config.values import FORBID_UNKNOWN, Count
from art_cli.config.yaml_values import read_yaml
from art_cli.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherConfig:
    """A dedicated endpoint at Together AI, billed by the minute until `art undeploy`."""

    __pydantic_config__ = FORBID_UNKNOWN
    base: str | None = None  # the base's name at Together, where model.base is a folder
    gpu: str | None = None  # such as H100; null: the cheapest that serves the base
    replicas: Count = 1
    idle_minutes: Annotated[int, Field(ge=30, le=1440)] | None = None  # then it stops by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """A repository at the Hugging Face Hub, with a model card written from the run."""

    __pydantic_config__ = FORBID_UNKNOWN
    private: bool = True
    weights: Literal["auto", "adapter", "merged"] = "auto"  # auto: the adapter, for a base there


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedConfig:
    """A folder with all weights, the adapter merged, that transformers and vLLM load."""

    __pydantic_config__ = FORBID_UNKNOWN
    folder: str | None = None  # null: in the run's own


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """An OpenAI-compatible server on this machine: vLLM on a GPU, else the embedded engine."""

    __pydantic_config__ = FORBID_UNKNOWN
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    host: str = "127.0.0.1"  # to listen on; 0.0.0.0: other machines reach it too
    key_env: str | None = None  # the variable that holds its key; null: a key is made, shown once


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyServeConfig:
    """A service file for `sky serve up`, which rents GPUs, replaces lost ones and balances."""

    __pydantic_config__ = FORBID_UNKNOWN
    accelerators: str | None = None  # such as L40S:1; null: the smallest that hold the weights
    replicas: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaConfig:
    """A Modelfile beside the merged weights, handed to `ollama create` where ollama is here."""

    __pydantic_config__ = FORBID_UNKNOWN


TARGETS: dict[str, type] = {
    "together": TogetherConfig,
    "hf": HubConfig,
    "merged": MergedConfig,
    "serve": ServeConfig,
    "skyserve": SkyServeConfig,
    "ollama": OllamaConfig,
}


def read_settings(target: str, args: dict[str, Any], words: Sequence[str]) -> Any:
    """Return the settings of a target: `args` of a config, then key=value `words` over them.

    Raises UsageError with every mistake.
    """
    data = dict(args)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word}: expected key=value, a setting of the target {target}")
        try:
            data[key] = read_yaml(value)
        except ValueError as e:
            raise UsageError(f"{word}: not valid YAML: {e}") from None
    return read_into(TARGETS[target], data, target)
