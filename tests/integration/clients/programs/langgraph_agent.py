"""LangGraph: a graph of one's own, streamed, and tools over MCP."""

import asyncio
import json
import os

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

with open(os.environ["ART_SCENARIO_FILE"]) as file:
    messages = json.load(file)["messages"]


async def main() -> None:
    server = {"url": os.environ["ART_MCP_URL"], "transport": "streamable_http"}
    tools = await MultiServerMCPClient({"env": server}).get_tools()
    tools = [t for t in tools if t.name != "reply"]
    model = ChatOpenAI(model="gpt-5-mini", streaming=True).bind_tools(tools)

    async def think(state: MessagesState) -> dict:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    async for part in graph.compile().astream({"messages": messages}, {"recursion_limit": 50}):
        print(part)


asyncio.run(main())
