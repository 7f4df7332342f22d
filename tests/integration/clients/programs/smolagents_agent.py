"""smolagents: a ToolCallingAgent, whose final_answer is a tool."""

import json
import os

from smolagents import OpenAIModel, ToolCallingAgent, ToolCollection

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    system, request = (m["content"] for m in json.load(file)["messages"])

server = {"url": os.environ["ART_MCP_URL"], "transport": "streamable-http"}
with ToolCollection.from_mcp(server, trust_remote_code=True, structured_output=False) as mcp:
    agent = ToolCallingAgent(
        tools=[t for t in mcp.tools if t.name != "reply"],
        model=OpenAIModel("gpt-5-mini", api_base=os.environ["OPENAI_BASE_URL"]),
        instructions=system,
    )
    print(agent.run(request))
