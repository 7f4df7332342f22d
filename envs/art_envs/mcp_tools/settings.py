"""The settings in `env.args` of an MCP server and its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from art_envs.tasks.with_tools import ToolTaskSettings


@dataclass(frozen=True, kw_only=True)
class McpSettings(ToolTaskSettings):
    """The server, how its tools are used, and the tasks."""

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
    resources: bool = False  # whether two tools more list and read what the server has

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
