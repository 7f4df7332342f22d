"""A harness of verifiers 0.4 that does in this process what its `null` starts a program for.

The model talks, and calls the task's tools. `null` has `uv` make an environment, and starts a
program in it for each episode and each turn of a user, of a second of CPU time and more.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI, omit
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.compaction import bound_tool_message
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["ArtChat"]


class ArtChatConfig(vf.HarnessConfig):
    """The settings that every harness has."""


class ArtChat(vf.Harness[ArtChatConfig]):
    """See Harness. A failure is recorded in the rollout as an error, or as a stop."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Run turns until an answer without a call."""
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        timeout = self.config.tool_timeout
        spec = {name: {"url": url, "timeout": timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as stack:
            client = AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
            await stack.enter_async_context(client)
            tools, names, servers = await connect_mcp({"mcpServers": spec}, stack)
            while True:
                completion: Any = await client.chat.completions.create(
                    model=ctx.model,
                    messages=messages,
                    tools=tools or omit,  # type: ignore[arg-type]
                )
                said = completion.choices[0].message
                messages.append(said.model_dump(exclude_none=True))
                if not said.tool_calls:
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                for call in said.tool_calls:
                    name, arguments = call.function.name, json.loads(call.function.arguments)
                    content = f"error: unknown tool {name!r}"
                    if name in names:
                        content = await call_mcp(servers, names, name, arguments)
                    result = {"role": "tool", "tool_call_id": call.id, "content": content}
                    messages.append(bound_tool_message(result))
