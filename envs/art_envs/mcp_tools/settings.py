"""The settings in `env.args` of an MCP server and its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from art_envs.tasks.with_tools import ToolTaskSettings


@dataclass(frozen=True, kw_only=True)
class McpSettings(ToolTaskSettings):
    """The server, how its tools are used, and the tasks."""

    # Starts a server that communicates over stdin and stdout: a list of arguments, or one line;
    # {python} is the interpreter that runs art.
    command: tuple[str, ...] | str | None = None
    url: str | None = None  # or the address of a running server (Streamable HTTP)
    headers: dict[str, str] = field(default_factory=dict)  # headers of each request to `url`
    # Further variables for the command, which also gets PATH, HOME and the like.
    pass_env: tuple[str, ...] = ()
    # One server for all episodes, if it starts slowly and keeps no state.
    shared: bool = False
    tools: tuple[str, ...] | None = None  # names of the offered tools; null: all
    resources: bool = False  # whether two further tools list and read the server's resources

    def __post_init__(self) -> None:
        """Raise ValueError if settings contradict each other."""
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
