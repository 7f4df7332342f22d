"""CrewAI: an agent, a task, and tools over MCP."""

import json
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
from crewai import Agent
from crewai.mcp import MCPServerHTTP, create_static_tool_filter

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])

tools = MCPServerHTTP(
    url=os.environ["ART_MCP_URL"],
    tool_filter=create_static_tool_filter(blocked_tool_names=["reply"]),
)
agent = Agent(role="shop assistant", goal="help", backstory=system, llm="gpt-4.1", mcps=[tools])
print(agent.kickoff(request).raw)
