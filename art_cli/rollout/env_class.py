"""The class of an env, or a stand-in for it if `env.python` names an interpreter."""

from __future__ import annotations

from art_cli.config.sections.env import EnvConfig
from art_cli.envs.base import Env
from art_cli.envs.registry import env_class, env_names
from art_cli.rollout.env_worker.remote import remote_class


def env_in(use: str, python: str | None = None) -> type[Env]:
    """Return the class of the env `use`, which runs in the interpreter `python` if that is set.

    Raises UsageError.
    """
    return remote_class(python, env_names().get(use, use)) if python else env_class(use)


def env_of(cfg: EnvConfig) -> type[Env]:
    """Return the env of a config. Raises UsageError."""
    return env_in(cfg.use, cfg.python)
