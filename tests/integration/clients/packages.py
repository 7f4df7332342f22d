"""What the tests of clients install. The recipes in the docs name the same versions."""

from __future__ import annotations

# Of Python, by environment. What cannot share one: smolagents, AutoGen and the MCP adapters of
# LangChain need the first major version of MCP's package, AG2 the second; CrewAI and aider hold
# back what others need newer.
PACKAGES = {
    "clients": [
        "openai==3.57.0",
        "openai-agents==0.24.0",
        "pydantic-ai-slim[openai,anthropic,mcp]==2.68.0",
        "ag2[openai,mcp]==1.2.1",
        "litellm==1.110.2",
        "anthropic==2.13.0",
        "mcp==2.3.0",
        "mini-swe-agent==2.4.6",
    ],
    "clients-mcp1": [
        "langchain==1.5.2",
        "langgraph==1.2.24",
        "langchain-openai==1.7.4",
        "langchain-anthropic==1.7.10",
        "langchain-mcp-adapters==0.3.2",
        "smolagents[openai,mcp]==1.26.0",
        "autogen-agentchat==0.7.5",
        "autogen-ext[openai,mcp]==0.7.5",
        "mcp<2",
    ],
    "clients-crewai": ["crewai==1.15.30"],
    "clients-aider": ["aider-chat==0.86.2"],
}
ENVIRONMENT = {
    "langchain": "clients-mcp1",
    "langgraph": "clients-mcp1",
    "smolagents": "clients-mcp1",
    "autogen": "clients-mcp1",
    "crewai": "clients-crewai",
}  # by the first word of a program's name; the others need "clients"

# Programs of npm, by environment, and those whose install scripts put their binary in its place.
AGENTS = {
    "clients-codex": ["@openai/codex@0.171.0", "@anthropic-ai/claude-code@2.1.332"],
    "clients-opencode": ["opencode-ai@1.18.33", "@qwen-code/qwen-code@0.24.4"],
}
BUILT = ("@anthropic-ai/claude-code", "opencode-ai")
ON_PATH = {
    "codex": "clients-codex",
    "claude_code": "clients-codex",
    "opencode": "clients-opencode",
    "qwen_code": "clients-opencode",
    "aider": "clients-aider",
    "mini_swe_agent": "clients",
}  # by a script's name: the environment of the command that it starts
