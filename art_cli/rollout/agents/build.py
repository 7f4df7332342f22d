"""Construction of the user's own agent from the section `agent` of a config."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack

from art_cli.config.sections.agent import LOOPBACK, AgentConfig, TrainedConfig, models_of
from art_cli.config.sections.reward import RewardConfig
from art_cli.engines.base import Engine
from art_cli.envs.registry import find
from art_cli.errors import UsageError
from art_cli.llms.base import AskedLLM
from art_cli.llms.services import RunServices
from art_cli.rollout.agents.function import FunctionRunner
from art_cli.rollout.agents.hosted import HostedAgents, Runner
from art_cli.rollout.agents.persistent import PersistentRunner, WorkerRunner
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.rollout.agents.sandbox import Bwrap, Docker, NoSandbox, Sandbox
from art_cli.rollout.agents.service import ServiceRunner
from art_cli.rollout.agents.user_runner import UserRunner
from art_cli.rollout.agents.workdir import Workdir
from art_cli.rollout.gateway.entrance import Entrance
from art_cli.rollout.gateway.hosted_episode import Served
from art_cli.rollout.gateway.routes import Routes
from art_cli.rollout.gateway.server import Gateway


async def open_agents(
    stack: AsyncExitStack,
    cfg: AgentConfig,
    runner: Runner,
    served: Served,
    reward: RewardConfig | None,
    say: Callable[[str], None],
) -> HostedAgents:
    """Return the agents behind a gateway that the stack closes. Raises PreflightError."""
    is_reached = cfg.use == "service" or (cfg.bind, cfg.public_url) != (LOOPBACK, None)
    at = Entrance.at(cfg.bind, cfg.public_url) if is_reached else None
    gateway = Gateway(served, at, drops_hosted=cfg.hosted_tools == "drop", say=say)
    await gateway.start()
    stack.push_async_callback(gateway.close)
    return HostedAgents(
        gateway=gateway,
        runner=runner,
        timeout=cfg.timeout,
        on_crash=cfg.on_crash,
        turns=asyncio.Semaphore(cfg.concurrency),
        gives_reward=bool(reward and reward.agent),
    )


def routes_of(
    cfg: AgentConfig,
    models: RunServices,
    base: Engine | None = None,
    in_its_place: AskedLLM | None = None,
) -> Routes:
    """Return the routes from model names to models. `models` holds those asked by API."""
    return Routes(
        models={name: models.asked(m) for name, m in models_of(cfg).items()},
        bases=frozenset(name for name, m in cfg.models.items() if m == "base"),
        base=base,
        train=frozenset(cfg.train.models) if isinstance(cfg.train, TrainedConfig) else cfg.train,
        in_its_place=in_its_place,
    )


def make_runner(cfg: AgentConfig) -> Runner | None:
    """Return the runner of the agent; None if the policy plays by itself.

    Raises PreflightError where there is no such program or folder, or its sandbox does not work,
    UsageError where there is no such function or class.
    """
    if ":" in cfg.use:
        return UserRunner(cfg)
    workdir, sandbox = Workdir(cfg.workdir), _sandbox(cfg)
    if cfg.command and cfg.keep:
        return PersistentRunner(cfg.command, cfg.pass_env, sandbox, cfg.timeout, workdir)
    if cfg.command:
        return ProgramRunner(cfg.command, cfg.pass_env, sandbox, workdir)
    if cfg.function and cfg.python:
        return WorkerRunner(cfg.python, cfg.function, cfg.pass_env, sandbox, cfg.timeout, workdir)
    if cfg.function:
        function = find(cfg.function)
        if not inspect.iscoroutinefunction(function):
            raise UsageError(f"agent.function: {cfg.function!r} is not an async function")
        return FunctionRunner(function, workdir)
    if cfg.url:
        return ServiceRunner(cfg.url, cfg.api_key_env, cfg.timeout)
    return None


def _sandbox(cfg: AgentConfig) -> Sandbox:
    if cfg.sandbox == "docker":
        return Docker(cfg.image or "")
    return Bwrap() if cfg.sandbox == "bwrap" else NoSandbox()
