"""The class of an env, or the one that stands for it where `env.python` names an interpreter."""

from __future__ import annotations

from art_cli.config.sections.env import EnvConfig
from art_cli.envs.base import Env
from art_cli.envs.registry import env_class, env_names
from art_cli.rollout.env_worker.remote import remote_class


def env_in(use: str, python: str | None = None) -> type[Env]:
    """Return the env that `env.use` names, in the interpreter that `env.python` names, if any.

    Raises UsageError.
    """
    return remote_class(python, env_names().get(use, use)) if python else env_class(use)


def env_of(cfg: EnvConfig) -> type[Env]:
    """Return the env of a config. Raises UsageError."""
    return env_in(cfg.use, cfg.python)
