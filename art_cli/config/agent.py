"""The section `agent`: who plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from art_cli.config.llm import LLMConfig
from art_cli.config.marks import OnlyWith
from art_cli.config.values import FORBID_UNKNOWN, Address, Count, Positive, Url

PROGRAM = OnlyWith("agent.type", ("program",))
FUNCTION = OnlyWith("agent.type", ("function",))
STARTED = OnlyWith("agent.type", ("program", "function"))
SERVICE = OnlyWith("agent.type", ("service",))
HOSTED = OnlyWith("agent.type", ("program", "function", "service"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedConfig:
    """The names of a model: only what the policy is asked for under them is learned from."""

    __pydantic_config__ = FORBID_UNKNOWN
    models: Annotated[list[str], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Who plays: the policy itself, turn by turn, or an agent of yours that asks it.

    A program is started once an episode; OPENAI_BASE_URL is the policy, ART_MCP_URL serves the
    env's tools, ART_SCENARIO_FILE holds the opening, ART_ANSWER_FILE may get its answer. A service
    runs already: each episode is posted to it.
    """

    type: Literal["builtin", "program", "function", "service"] = "builtin"
    command: Annotated[list[str] | None, PROGRAM] = None
    # One process plays many episodes, which it is told of line by line.
    keep: Annotated[bool, PROGRAM] = False
    # package.module:function or path/to/file.py:function
    use: Annotated[str | None, FUNCTION] = None
    # The interpreter of an environment of its own; null: it runs in art's process.
    python: Annotated[str | None, FUNCTION] = None
    url: Annotated[Url | None, SERVICE] = None  # where episodes are posted
    # The variable that holds the key which the service wants.
    api_key_env: Annotated[str | None, SERVICE] = None
    # Where the service reaches the policy; port 0: a free one.
    bind: Annotated[Address, SERVICE] = "127.0.0.1:0"
    # The same as the service sees it: behind a proxy, or in another network.
    public_url: Annotated[Url | None, SERVICE] = None
    # Where it starts. fresh: in a folder and HOME of each episode's own; inherit: art's; or a path.
    workdir: Annotated[str, STARTED, Field(min_length=1)] = "fresh"
    # Variables that a program gets from ours.
    pass_env: Annotated[list[str], STARTED] = field(default_factory=list)
    # A tool of the agent's own whose arguments are its answer; null: final_result (and
    # final_result_NAME), final_answer and answer, which frameworks use.
    answer_tool: Annotated[str | None, HOSTED] = None
    # Calls of the policy in an episode; null: ten times the env's max_turns.
    max_calls: Annotated[Count | None, HOSTED] = None
    # Tools of its requests that only OpenAI or Anthropic run, as web_search. drop: leave them out.
    hosted_tools: Annotated[Literal["refuse", "drop"], HOSTED] = "refuse"
    # What hides the machine from a program.
    sandbox: Annotated[Literal["none", "bwrap", "docker"], STARTED] = "none"
    image: Annotated[str | None, OnlyWith("agent.sandbox", ("docker",))] = None  # e.g. node:22
    # NAME: base, or NAME: {model: openai/gpt-4.1-mini, ...}: who answers to a name, untrained.
    models: Annotated[dict[str, Literal["base"] | LLMConfig], HOSTED] = field(default_factory=dict)
    max_usd: Annotated[Positive | None, HOSTED] = None  # for agent.models, of the whole run
    # Which calls of the policy are learned from: of the conversation that plays, or by name.
    train: Annotated[Literal["main", "all"] | TrainedConfig, HOSTED] = "all"
    timeout: Annotated[Positive, HOSTED] = 600.0  # seconds, of one episode
    concurrency: Annotated[Count, HOSTED] = 16  # at once
    on_crash: Annotated[Literal["score", "drop"], HOSTED] = "score"  # drop: it is left out


def models_of(cfg: AgentConfig) -> dict[str, LLMConfig]:
    """Return the models that are asked, by the names that they answer to."""
    return {name: m for name, m in cfg.models.items() if isinstance(m, LLMConfig)}


def asks_base(cfg: AgentConfig) -> bool:
    """Return whether the policy's base answers to a name."""
    return "base" in cfg.models.values()
