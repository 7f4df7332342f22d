"""The env whose tools are the operations of an HTTP API, and its tasks from a file.

user        How many pets are sold?
assistant   <tool_call>{"name": "findPetsByStatus", "arguments": {"status": "sold"}}</tool_call>
tool        [{"id": 7, "name": "Rex"}, {"id": 9, "name": "Ada"}]
assistant   Two: 2.                                         grade: number  ->  1
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from art_envs.openapi_tools.api import opened
from art_envs.openapi_tools.settings import OpenApiSettings
from art_envs.tasks.with_tools import ToolSource, ToolTaskEnv


class OpenApiTools(ToolTaskEnv):
    """Operations of an HTTP API as tools, tasks from a file: no Python to write."""

    Config = OpenApiSettings

    @classmethod
    def opened(cls, cfg: OpenApiSettings) -> AbstractAsyncContextManager[ToolSource]:
        """Read the document, and open a client."""
        return opened(cfg)
