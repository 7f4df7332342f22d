"""Models that an env's settings name, such as a simulated user. They are opened before the run."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any, cast

from art_cli.config.sections.env import EnvConfig, opponents_asked
from art_cli.config.sections.llm import REFERENCE, LLMConfig
from art_cli.errors import LLMError, PreflightError
from art_cli.llms.base import LLM, QUESTION, AskedLLM, Budget
from art_cli.llms.remote import RemoteLLM
from art_cli.llms.stand_in import STAND_IN, StandInLLM
from art_cli.system.child_server import ChildServer


class RunServices:
    """The open models of a run; implements `Services`."""

    def __init__(self, budget: Budget, who: str = "llm") -> None:
        """`who` is the prefix of their metrics."""
        self._llms: dict[str, LLM] = {}
        self.budget = budget
        self._who = who

    @classmethod
    async def open(
        cls,
        env: EnvConfig,
        settings: Any,
        reference: LLM | None = None,
        budget: Budget | None = None,
    ) -> RunServices:
        """Start and test every model that the env calls; all share one budget.

        Raises PreflightError: no key, no such model, no answer.
        """
        services = cls(budget or Budget(None))
        try:
            named = {_key(cfg): (name, cfg) for name, cfg in models_of_env(env, settings).items()}
            for key, (name, cfg) in named.items():  # each distinct model once
                services._llms[key] = await _open(cfg, reference, services.budget, name)
        except BaseException:
            await services.close()
            raise
        return services

    @classmethod
    async def open_named(cls, llms: dict[str, LLMConfig], budget: Budget) -> RunServices:
        """Start and test the models of `agent.models`. Raises PreflightError like `open`."""
        services = cls(budget, "agent")
        try:
            for name, cfg in llms.items():
                services._llms[_key(cfg)] = await _open(cfg, None, budget, f"agent.models.{name}")
        except BaseException:
            await services.close()
            raise
        return services

    def asked(self, cfg: LLMConfig) -> AskedLLM:
        """Return a model of `agent.models`."""
        return cast(AskedLLM, self.llm(cfg))

    def llm(self, cfg: LLMConfig) -> LLM:
        return self._llms[_key(cfg)]

    @property
    def spent(self) -> float:
        """US dollars spent over all models and the whole run."""
        return self.budget.spent

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics since the last call, or {} if there are no models."""
        if not self._llms:
            return {}
        usages = [llm.usage.take() for llm in self._llms.values()]
        calls = sum(u.calls for u in usages)
        out = {
            f"{self._who}/calls": calls,
            f"{self._who}/retries": sum(u.retries for u in usages),
            f"costs/{self._who}_usd": self.spent,
        }
        if calls:
            out[f"{self._who}/latency_s"] = sum(u.seconds for u in usages) / calls
        return out

    async def close(self) -> None:
        """Close all models."""
        for llm in self._llms.values():
            await llm.close()


def llm_settings(settings: Any) -> dict[str, LLMConfig]:
    """Return the models that an env's settings name, by setting."""
    names = [each.name for each in fields(settings)] if is_dataclass(settings) else []
    values = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, LLMConfig)}


def models_of_env(env: EnvConfig, settings: Any) -> dict[str, LLMConfig]:
    """Return the models that the section `env` names, by config key."""
    found = {f"env.args.{name}": cfg for name, cfg in llm_settings(settings).items()}
    return found | opponents_asked(env.opponents)


def needs_reference(settings: Any) -> bool:
    """Return whether the env calls the base model itself."""
    return any(cfg.model == REFERENCE for cfg in llm_settings(settings).values())


async def open_remote(
    cfg: LLMConfig, budget: Budget, tools: list[dict[str, Any]] | None = None
) -> RemoteLLM:
    """Return a model that was tested and can be offered these tools.

    Raises PreflightError: no key, no such model, no answer, or no price to enforce the budget with.
    """
    server = await ChildServer.start(cfg.command) if cfg.command else None
    try:
        llm = RemoteLLM(cfg, budget, server)
    except BaseException:
        if server:
            await server.close()
        raise
    try:
        if tools and not llm.takes_tools():
            raise PreflightError(f"{cfg.model} cannot be offered tools: litellm leaves them out")
        await llm.ask([QUESTION], tools=tools)
    except LLMError as e:
        await llm.close()
        raise PreflightError(f"{cfg.model} cannot be used: {e}") from e
    except BaseException:
        await llm.close()
        raise
    llm.usage.take()  # the test call must not count in the first step
    return llm


async def _open(cfg: LLMConfig, reference: LLM | None, budget: Budget, who: str) -> LLM:
    if cfg.model == REFERENCE:
        if reference is None:
            raise PreflightError(
                "the env uses the model `reference`, the base with its adapter off, but "
                "model.adapter is null; name another model, or train an adapter"
            )
        return reference
    if cfg.model == STAND_IN:
        return StandInLLM()
    try:
        return await open_remote(cfg, budget)
    except PreflightError as e:
        raise PreflightError(f"{who}: {e}") from e


def _key(cfg: LLMConfig) -> str:
    return json.dumps(asdict(cfg), sort_keys=True)
