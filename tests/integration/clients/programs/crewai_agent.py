"""CrewAI: an agent, its task, and the env's tools by plain HTTP.

(Its own MCP client names tools by the server's address, which is another one in each episode.)
"""

import json
import os
import urllib.request

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
from crewai import Agent, Crew, Task
from crewai.tools import BaseTool
from crewai.utilities.pydantic_schema_utils import create_model_from_schema

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    task = json.load(file)
system, request = (m["content"] for m in task["messages"])


class EnvTool(BaseTool):
    def _run(self, **arguments) -> str:
        params = {"name": self.name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        request = urllib.request.Request(os.environ["ART_MCP_URL"], json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"]


def wrapped(function: dict) -> EnvTool:
    schema = create_model_from_schema(function["parameters"])
    name, description = function["name"], function["description"]
    return EnvTool(name=name, description=description, args_schema=schema)


agent = Agent(
    role="shop assistant",
    goal="serve the customer",
    backstory=system,
    llm="gpt-4.1",
    tools=[wrapped(t["function"]) for t in task["tools"]],
)
job = Task(description=request, expected_output="what is said to the customer", agent=agent)
print(Crew(agents=[agent], tasks=[job]).kickoff().raw)
