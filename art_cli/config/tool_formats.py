"""The names of the formats in which models write tool calls."""

from __future__ import annotations

from typing import Literal

# The names in art_cli/chat/tool_formats/table.py.
ToolFormatName = Literal[
    "auto",
    "apertus",
    "cohere",
    "deepseek_dsml",
    "deepseek_v3",
    "deepseek_v31",
    "gemma3",
    "gemma4",
    "glm",
    "granite",
    "harmony",
    "hermes",
    "json_list",
    "kimi",
    "lfm",
    "llama3_json",
    "minimax",
    "mistral",
    "mistral_list",
    "nemotron",
    "phi",
    "pythonic",
    "qwen_xml",
    "smollm_python",
]
