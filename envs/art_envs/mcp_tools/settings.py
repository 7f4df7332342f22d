"""What `env.args` may say of an MCP server and its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from art_envs.tasks.settings import TaskSettings


@dataclass(frozen=True, kw_only=True)
class McpSettings(TaskSettings):
    """The server, and the tasks (`art_envs.tasks.settings`)."""

    # Starts a server that talks over stdin and stdout: words, or a line of them; {python} is the
    # interpreter that art runs in.
    command: tuple[str, ...] | str | None = None
    url: str | None = None  # or where one runs already (Streamable HTTP)
    headers: dict[str, str] = field(default_factory=dict)  # of each request to `url`
    # Variables that the command gets too; it has PATH, HOME and the like.
    pass_env: tuple[str, ...] = ()
    # One server for all episodes: for one that is slow to start and keeps nothing.
    shared: bool = False
    tools: tuple[str, ...] | None = None  # those that are offered; null: all
    max_turns: Annotated[int, Field(ge=1)] = 10
    max_result: Annotated[int, Field(ge=100)] = 20_000  # characters of a result that are shown
    start_timeout: Annotated[float, Field(gt=0)] = 30.0  # seconds, until the tools are known
    call_timeout: Annotated[float, Field(gt=0)] = 30.0  # seconds, of one call

    def __post_init__(self) -> None:
        """Raise ValueError where settings do not go together."""
        super().__post_init__()
        if (self.command is None) == (self.url is None):
            raise ValueError(
                "give one of command, which starts a server, and url, where one runs already"
            )
        if self.command is not None and not self.command:
            raise ValueError("command: there is no word in it")
        if self.headers and self.url is None:
            raise ValueError("headers has no effect without url; remove it")
        if self.pass_env and self.command is None:
            raise ValueError("pass_env has no effect without command; remove it")
