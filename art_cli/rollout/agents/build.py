"""The section `agent` of a config becomes what starts the user's own agent."""

from __future__ import annotations

import inspect

from art_cli.config.schema import AgentConfig
from art_cli.envs.registry import find
from art_cli.errors import UsageError
from art_cli.rollout.agents.function import FunctionRunner
from art_cli.rollout.agents.hosted import Runner
from art_cli.rollout.agents.kept import KeptRunner, WorkerRunner
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.rollout.agents.sandbox import Bwrap, Docker, NoSandbox, Sandbox
from art_cli.rollout.agents.service import ServiceRunner


def make_runner(cfg: AgentConfig) -> Runner | None:
    """Return what starts the agent, or None: the policy plays itself.

    Raises PreflightError where there is no such program or its sandbox does not work, UsageError
    where there is no such function.
    """
    if cfg.command and cfg.keep:
        return KeptRunner(cfg.command, cfg.pass_env, _sandbox(cfg), cfg.timeout)
    if cfg.command:
        return ProgramRunner(cfg.command, cfg.pass_env, _sandbox(cfg))
    if cfg.use and cfg.python:
        return WorkerRunner(cfg.python, cfg.use, cfg.pass_env, _sandbox(cfg), cfg.timeout)
    if cfg.use:
        function = find(cfg.use)
        if not inspect.iscoroutinefunction(function):
            raise UsageError(f"agent.use: {cfg.use!r} is not an async function")
        return FunctionRunner(function)
    if cfg.url:
        return ServiceRunner(cfg.url, cfg.api_key_env, cfg.timeout)
    return None


def _sandbox(cfg: AgentConfig) -> Sandbox:
    if cfg.sandbox == "docker":
        return Docker(cfg.image or "")
    return Bwrap() if cfg.sandbox == "bwrap" else NoSandbox()
