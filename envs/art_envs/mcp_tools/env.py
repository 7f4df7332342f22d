"""The env whose tools come from an MCP server, and its tasks from a file.

user        How many notes does Ann have?
assistant   <tool_call>{"name": "list_notes", "arguments": {"owner": "Ann"}}</tool_call>
tool        milk, stamps
assistant   She has 2.                                      grade: number  ->  1
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from art_envs.mcp_tools.server import connected
from art_envs.mcp_tools.settings import McpSettings
from art_envs.mcp_tools.shared import borrowed
from art_envs.tasks.with_tools import ToolSource, ToolTaskEnv


class McpTools(ToolTaskEnv):
    """Tools from an MCP server, tasks from a file: no Python to write."""

    Config = McpSettings

    @classmethod
    def opened(cls, cfg: McpSettings) -> AbstractAsyncContextManager[ToolSource]:
        """Start or reach a server for one episode."""
        return borrowed(cfg) if cfg.shared else connected(cfg)
