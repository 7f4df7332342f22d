"""The section `agent`: the player of episodes."""

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
    """The calls to train on, selected by the model name in the agent's request."""

    __pydantic_config__ = FORBID_UNKNOWN

    models: Annotated[list[str], Field(min_length=1)]
    """The model names. The policy's answers to any other name are not trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The player: the policy itself, turn by turn, or an agent of yours that calls the policy.

    A program is started for each episode. OPENAI_BASE_URL is the address of the policy, ART_MCP_URL
    that of the env's tools. ART_SCENARIO_FILE has the opening, and the program may write its answer
    to ART_ANSWER_FILE. A service is already running and receives each episode as a POST request.
    """

    use: Literal["builtin", "program", "function", "service"] | Annotated[str, Plugin("agents")] = (
        "builtin"
    )
    """The kind of agent: the built-in loop, a program, a Python function, an HTTP service, or a
    class of your own that starts agents, and is made of this section."""
    command: Annotated[list[str] | None, PROGRAM] = None
    """The command that starts the program, for example [node, agent.js]."""
    keep: Annotated[bool, PROGRAM] = False
    """Whether one process plays many episodes, each received as a line of JSON. Set it if the
    program starts slowly."""
    function: Annotated[str | None, FUNCTION] = None
    """The function, as package.module:function or path/to/file.py:function."""
    python: Annotated[str | None, FUNCTION] = None
    """The Python interpreter of an environment with the function's packages. null: it runs in art's
    own process."""
    url: Annotated[Url | None, SERVICE] = None
    """The URL to which episodes are posted."""
    api_key_env: Annotated[str | None, SERVICE] = None
    """The environment variable that holds the key of the service. null: it needs none."""
    bind: Annotated[Address, SERVICE] = LOOPBACK
    """The address on which the policy is served to the service. Port 0: a free one."""
    public_url: Annotated[Url | None, SERVICE] = None
    """The URL at which the service reaches `bind`, if it differs: a proxy, or another network."""
    workdir: Annotated[str, STARTED, Field(min_length=1)] = "fresh"
    """The folder in which the agent starts. fresh: an empty folder and HOME for each episode;
    inherit: art's own; or the path of a folder that all episodes share."""
    pass_env: Annotated[list[str], STARTED] = field(default_factory=list)
    """Environment variables that the agent inherits. It gets no others."""
    answer_tool: Annotated[str | None, HOSTED] = None
    """The agent's own tool whose arguments are its answer. null: final_result (and
    final_result_NAME), final_answer and answer, the names that frameworks use."""
    max_calls: Annotated[Count | None, HOSTED] = None
    """The most calls of the policy in an episode, which then ends. null: ten times the env's
    max_turns."""
    hosted_tools: Annotated[Literal["refuse", "drop"], HOSTED] = "refuse"
    """How to treat a tool that only OpenAI or Anthropic can run, such as web_search. refuse: the
    request fails; drop: the tool is left out."""
    sandbox: Annotated[Literal["none", "bwrap", "docker"], STARTED] = "none"
    """The isolation of the agent from this machine."""
    image: Annotated[str | None, OnlyWith("agent.sandbox", ("docker",))] = None
    """The Docker image of the sandbox, for example node:22."""
    models: Annotated[dict[str, Literal["base"] | LLMConfig], HOSTED] = field(default_factory=dict)
    """Other models that the agent may request by name. They are not trained. `NAME: base` is the
    policy before training, `NAME: {model: openai/gpt-4.1-mini}` is a model behind an API."""
    max_usd: Annotated[Positive | None, HOSTED] = None
    """The most US dollars that `models` may cost in the whole run. At this limit the run stops.
    null: no limit."""
    train: Annotated[Literal["main", "all"] | TrainedConfig, HOSTED] = "all"
    """The calls of the policy to train on: all, those of the main conversation, or those made under
    certain model names."""
    timeout: Annotated[Positive, HOSTED] = 600.0
    """The most seconds that an episode may take."""
    concurrency: Annotated[Count, HOSTED] = 16
    """The most agents at once. Each needs the memory of a separate process."""
    on_crash: Annotated[Literal["score", "drop"], HOSTED] = "score"
    """How to treat an episode whose agent crashed. score: the env scores what the agent did; drop:
    the episode is left out, as if the machine had failed."""


def models_of(cfg: AgentConfig) -> dict[str, LLMConfig]:
    """Return the models behind an API, by their names for the agent."""
    return {name: m for name, m in cfg.models.items() if isinstance(m, LLMConfig)}


def asks_base(cfg: AgentConfig) -> bool:
    """Return whether the agent may request the policy's base model."""
    return "base" in cfg.models.values()


def _is_wildcard(address: str) -> bool:
    return address.rpartition(":")[0] in ("0.0.0.0", "[::]", "*")


def _of_base(models: Any) -> bool:
    return isinstance(models, dict) and "base" in models.values()


def _asks_nobody(models: Any) -> bool:
    return isinstance(models, dict) and not any(isinstance(m, dict) for m in models.values())


def _untrained(train: Any, models: Any) -> bool:
    """Return whether a model name to train on belongs to another model."""
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
