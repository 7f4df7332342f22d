"""Construction of a target from its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from art_cli.config.targets import read_settings, read_words
from art_cli.deploy.base import Target
from art_cli.deploy.user_target import UserTarget

HOME = "art_cli.deploy.targets"
WHERE = {
    "together": "together.target:TogetherTarget",
    "hf": "hub:HubTarget",
    "merged": "merged:MergedTarget",
    "serve": "serve.target:ServeTarget",
    "skyserve": "skyserve:SkyServeTarget",
    "ollama": "ollama.target:OllamaTarget",
}


def make_target(name: str, args: dict[str, Any], words: Sequence[str] = ()) -> Target:
    """Return a target with the settings that `args` of a config and key=value `words` give it.

    What a built-in one needs is imported now. Raises UsageError.
    """
    if name not in WHERE:
        return UserTarget(name, read_words(name, args, words))
    settings = read_settings(name, args, words)
    module, _, attribute = WHERE[name].partition(":")
    make: Callable[[Any], Target] = getattr(import_module(f"{HOME}.{module}"), attribute)
    return make(settings)
