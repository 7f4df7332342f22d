"""The section `agent`: who plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.marks import OnlyWith
from art_cli.config.plugins import FORM, Plugin
from art_cli.config.rule import Rule, clash
from art_cli.config.sections.llm import LLMConfig
from art_cli.config.values import FORBID_UNKNOWN, Address, Count, Positive, Url

LOOPBACK = "127.0.0.1:0"  # a free port of this machine alone
PROGRAM = OnlyWith("agent.use", ("program", FORM))
FUNCTION = OnlyWith("agent.use", ("function", FORM))
STARTED = OnlyWith("agent.use", ("program", "function", FORM))
SERVICE = OnlyWith("agent.use", ("service", FORM))
HOSTED = OnlyWith("agent.use", ("program", "function", "service", FORM))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedConfig:
    """The calls that are trained on, by the model name that the agent asks for."""

    __pydantic_config__ = FORBID_UNKNOWN

    models: Annotated[list[str], Field(min_length=1)]
    """The names. What the policy answers under any other name is not trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The player: the policy itself, turn by turn, or an agent of yours that calls the policy.

    A program is started once an episode. OPENAI_BASE_URL is the policy, ART_MCP_URL serves the
    env's tools, ART_SCENARIO_FILE holds the opening, and ART_ANSWER_FILE may get its answer. A
    service runs already: each episode is posted to it.
    """

    use: Literal["builtin", "program", "function", "service"] | Annotated[str, Plugin("agents")] = (
        "builtin"
    )
    """The kind of agent: the built-in loop, a program, a Python function, an HTTP service, or a
    class of your own that starts agents, and is made of this section."""
    command: Annotated[list[str] | None, PROGRAM] = None
    """The command that starts the program, for example [node, agent.js]."""
    keep: Annotated[bool, PROGRAM] = False
    """Whether one process plays many episodes, each given to it as a line of JSON. Set it where
    starting the program is slow."""
    function: Annotated[str | None, FUNCTION] = None
    """The function, as package.module:function or path/to/file.py:function."""
    python: Annotated[str | None, FUNCTION] = None
    """The Python interpreter of an environment that holds the function's packages. null: it runs in
    art's own process."""
    url: Annotated[Url | None, SERVICE] = None
    """The address that episodes are posted to."""
    api_key_env: Annotated[str | None, SERVICE] = None
    """The environment variable that holds the key of the service. null: it needs none."""
    bind: Annotated[Address, SERVICE] = LOOPBACK
    """The address on which the policy is served to the service. Port 0: a free one."""
    public_url: Annotated[Url | None, SERVICE] = None
    """The address at which the service reaches `bind`: behind a proxy, or from another network."""
    workdir: Annotated[str, STARTED, Field(min_length=1)] = "fresh"
    """The folder in which the agent starts. fresh: an empty folder and HOME for each episode;
    inherit: art's own; or a path, which is copied for each episode."""
    pass_env: Annotated[list[str], STARTED] = field(default_factory=list)
    """Environment variables that the agent inherits. It gets no others."""
    answer_tool: Annotated[str | None, HOSTED] = None
    """The agent's own tool whose arguments are its answer. null: final_result (and
    final_result_NAME), final_answer and answer, the names that frameworks use."""
    max_calls: Annotated[Count | None, HOSTED] = None
    """The most calls of the policy in an episode, which ends there. null: ten times the env's
    max_turns."""
    hosted_tools: Annotated[Literal["refuse", "drop"], HOSTED] = "refuse"
    """What happens to a tool that only OpenAI or Anthropic can run, such as web_search. refuse: the
    request fails; drop: it is left out."""
    sandbox: Annotated[Literal["none", "bwrap", "docker"], STARTED] = "none"
    """What isolates the agent from this machine."""
    image: Annotated[str | None, OnlyWith("agent.sandbox", ("docker",))] = None
    """The Docker image of the sandbox, for example node:22."""
    models: Annotated[dict[str, Literal["base"] | LLMConfig], HOSTED] = field(default_factory=dict)
    """Other models that the agent may ask for by name; they are not trained. `NAME: base` is the
    policy before training, `NAME: {model: openai/gpt-4.1-mini}` is behind an API."""
    max_usd: Annotated[Positive | None, HOSTED] = None
    """The most US dollars that `models` may cost in the whole run, which then stops. null: no
    limit."""
    train: Annotated[Literal["main", "all"] | TrainedConfig, HOSTED] = "all"
    """The calls of the policy that are trained on: all, those of the main conversation, or those
    made under certain names."""
    timeout: Annotated[Positive, HOSTED] = 600.0
    """Seconds that an episode may take."""
    concurrency: Annotated[Count, HOSTED] = 16
    """The most agents at once. Each takes the memory of a process of its own."""
    on_crash: Annotated[Literal["score", "drop"], HOSTED] = "score"
    """What becomes of an episode whose agent crashed. score: the env scores what it has done; drop:
    it is left out, as if the machine had failed."""


def models_of(cfg: AgentConfig) -> dict[str, LLMConfig]:
    """Return the models behind an API, by the names that they answer to."""
    return {name: m for name, m in cfg.models.items() if isinstance(m, LLMConfig)}


def asks_base(cfg: AgentConfig) -> bool:
    """Return whether the policy's base answers to a name."""
    return "base" in cfg.models.values()


def _is_wildcard(address: str) -> bool:
    return address.rpartition(":")[0] in ("0.0.0.0", "[::]", "*")


def _of_base(models: Any) -> bool:
    return isinstance(models, dict) and "base" in models.values()


def _asks_nobody(models: Any) -> bool:
    return isinstance(models, dict) and not any(isinstance(m, dict) for m in models.values())


def _untrained(train: Any, models: Any) -> bool:
    """Return whether what is to be trained is answered by another model."""
    return isinstance(train, dict) and bool(set(train.get("models") or ()) & set(models or ()))


AGENT_RULES = (
    Rule(
        "agent.models",
        ("model.adapter",),
        lambda models, adapter: _of_base(models) and adapter is None,
        "holds base, the weights before training, but model.adapter is null: they are trained "
        "themselves, and kept nowhere; train an adapter, or name a model of an API",
    ),
    Rule(
        "agent.models",
        ("train.max_staleness",),
        lambda models, staleness: _of_base(models) and staleness > 0,
        "holds base, which cannot be computed while its adapter is in an update, but "
        "train.max_staleness lets rollouts run into updates; name a model of an API, or remove it",
    ),
    Rule(
        "agent.max_usd",
        ("agent.models",),
        lambda usd, models: usd is not None and _asks_nobody(models),
        "has no effect where agent.models asks nobody; remove it",
    ),
    Rule(
        "agent.train",
        ("agent.models",),
        _untrained,
        "names a model that agent.models gives to another one, which is not trained; remove it "
        "from one of them",
    ),
    clash(
        {"agent.use": "program", "agent.command": not_},
        "is program, but agent.command is missing, e.g. [node, agent.js]",
    ),
    clash(
        {"agent.use": "function", "agent.function": not_},
        "is function, but agent.function is missing, e.g. agent.py:play",
    ),
    clash(
        {"agent.use": "service", "agent.url": not_},
        "is service, but agent.url is missing, e.g. http://127.0.0.1:8900/episodes",
    ),
    clash(
        {"agent.bind": _is_wildcard, "agent.public_url": None},
        "is all addresses of this machine, but agent.public_url is missing: the service must be "
        "told one of them, e.g. http://10.0.0.5:8901",
    ),
    *(
        Rule(
            f"agent.{key}",
            ("agent.use", "agent.python"),
            lambda value, kind, python, default=default: (
                value != default and kind == "function" and python is None
            ),
            "has no effect on a function in art's own process; add agent.python, or remove it",
        )
        for key, default in (("pass_env", []), ("sandbox", "none"))
    ),
    clash(
        {"agent.sandbox": "docker", "agent.image": not_},
        "is docker, but agent.image is missing, e.g. node:22",
    ),
)
