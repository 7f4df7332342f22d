"""Construction of a target from its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from art_cli.deploy.base import Target

HOME = "art_cli.deploy.targets"
WHERE = {
    "together": "together.target:TogetherTarget",
    "hf": "hub:HubTarget",
    "merged": "merged:MergedTarget",
    "serve": "serve.target:ServeTarget",
    "skyserve": "skyserve:SkyServeTarget",
    "ollama": "ollama.target:OllamaTarget",
}


def make_target(name: str, settings: Any) -> Target:
    """Return a target of `config.targets.TARGETS`, importing its module."""
    module, _, attribute = WHERE[name].partition(":")
    make: Callable[[Any], Target] = getattr(import_module(f"{HOME}.{module}"), attribute)
    return make(settings)
