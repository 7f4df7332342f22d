"""The section `deploy`: where to put a checkpoint, and the settings of each target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.plugins import Plugin
from art_cli.config.values import FORBID_UNKNOWN, Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployConfig:
    """The target of `art deploy RUN`."""

    use: (
        Literal["together", "hf", "merged", "serve", "skyserve", "ollama"]
        | Annotated[str, Plugin("targets")]
    )
    """The target, as `art deploy --to` names it: a built-in one, or a class of your own."""
    name: str | None = None
    """The deployment's name. null: built from project, run and step."""
    args: dict[str, Any] = field(default_factory=dict)
    """The target's own settings, which follow here for each target. A class of your own declares
    them in its `Config`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherConfig:
    """A dedicated endpoint at Together AI, billed by the minute until `art undeploy`."""

    __pydantic_config__ = FORBID_UNKNOWN

    base: str | None = None
    """The base model's name at Together. Required if `model.base` is a folder."""
    gpu: str | None = None
    """The kind of GPU, such as H100. null: the cheapest that can serve the base model."""
    replicas: Count = 1
    """Copies of the model that share the requests. Each is billed."""
    idle_minutes: Annotated[int, Field(ge=30, le=1440)] | None = None
    """Minutes without a request until the endpoint stops by itself. null: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """A repository at the Hugging Face Hub, with a generated model card."""

    __pydantic_config__ = FORBID_UNKNOWN

    private: bool = True
    """Whether the repository is private."""
    weights: Literal["auto", "adapter", "merged"] = "auto"
    """The weights to upload. auto: the adapter if its base is at the Hub, else merged weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedConfig:
    """A folder with all weights, the adapter merged, for transformers and vLLM."""

    __pydantic_config__ = FORBID_UNKNOWN

    folder: str | None = None
    """The folder to write. null: one in the run's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """An OpenAI-compatible server on this machine: vLLM on a GPU, else the embedded engine."""

    __pydantic_config__ = FORBID_UNKNOWN

    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """The engine that generates. auto: vLLM on a GPU, else the embedded engine."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """The port of the server."""
    host: str = "127.0.0.1"
    """The address of the server. With 0.0.0.0, other machines can reach it too."""
    key_env: str | None = None
    """The environment variable with the server's key. null: a key is generated and shown once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyServeConfig:
    """A service file for `sky serve up`, which rents GPUs, replaces lost ones and balances."""

    __pydantic_config__ = FORBID_UNKNOWN

    accelerators: str | None = None
    """The GPUs of a replica, such as L40S:1. null: the smallest that can hold the weights."""
    replicas: Count = 1
    """Copies of the model that share the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaConfig:
    """A Modelfile and the merged weights. `ollama create` imports them if ollama is installed."""

    __pydantic_config__ = FORBID_UNKNOWN


TARGETS: dict[str, type] = {
    "together": TogetherConfig,
    "hf": HubConfig,
    "merged": MergedConfig,
    "serve": ServeConfig,
    "skyserve": SkyServeConfig,
    "ollama": OllamaConfig,
}
