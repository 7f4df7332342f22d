"""A connection to an MCP server, through the official client. Every wait ends.

A server that is started has a guard, which ends it and all that it started when we close its
stdin, or die.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import IO, Any

from art_cli import InvalidCallError, Tool, ToolError, UsageError, guarded
from art_envs.mcp_tools.resources import MOST_PAGES, Resources
from art_envs.mcp_tools.settings import McpSettings
from art_envs.tasks.with_tools import ServerError, cut, did_you_mean

INSTALL = "pip install 'art-cli[mcp]'"
GRACE = 1.0  # seconds to exit by itself; the client terminates it after 2
MOST_PRINTED = 2**26  # bytes on stderr after which the server is killed
MOST_TEXT = 2**22  # characters of a result; more is a fault of the server
SHOWN = 2000  # characters of the server's last output in an error message

logging.getLogger("mcp").addHandler(logging.NullHandler())  # our errors contain its messages


class Server:
    """An open connection. `tools` are those that the settings allow."""

    def __init__(self, cfg: McpSettings, client: Any, log: IO[bytes] | None) -> None:
        self._cfg = cfg
        self._client = client
        self._log = log
        self._resources: Resources | None = None
        self.tools: list[Tool] = []

    async def list_tools(self) -> list[Tool]:
        """Request the tools, and add those that read resources if the settings want them.

        Raise UsageError if there are no tools, not all of `tools`, or no resources.
        """
        found: list[Tool] = []
        cursor = None
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            found += map(_tool, page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        wanted, known = self._cfg.tools, {tool.name: tool for tool in found}
        if self._cfg.resources:
            if self._client.server_capabilities.resources is None:
                raise UsageError(
                    f"env.args.resources: the MCP server {named(self._cfg)} has none; remove it"
                )
            self._resources = Resources(self._client, known, self._cfg.max_result)
        elif not found:
            raise UsageError(f"the MCP server {named(self._cfg)} offers no tools")
        of_resources = self._resources.tools if self._resources else []
        known |= {tool.name: tool for tool in of_resources}
        for name in wanted or ():
            if name not in known:
                raise UsageError(
                    f"env.args.tools: the MCP server {named(self._cfg)} has no tool {name!r}; it "
                    f"has {', '.join(known)}.{did_you_mean(name, known)}"
                )
        offered = found if wanted is None else [known[name] for name in wanted]
        return [*(tool for tool in offered if tool not in of_resources), *of_resources]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the result of a tool as text. Raise ToolError if it refuses, or ServerError."""
        import mcp
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS

        seconds = self._cfg.call_timeout
        try:
            async with asyncio.timeout(seconds):
                text, is_error = await self._answer(name, arguments)
        except TimeoutError:
            raise self._failed(
                f"did not answer the call of {name!r} within {seconds:g} s (env.args.call_timeout)"
            ) from None
        except mcp.MCPError as e:
            if e.code == CONNECTION_CLOSED:
                raise self._failed(f"ended while {name!r} was called") from None
            kind = InvalidCallError if e.code == INVALID_PARAMS else ToolError
            raise kind(cut(e.message, self._cfg.max_result)) from None
        except ToolError:
            raise
        except Exception as e:  # an answer that is not MCP, or a broken connection
            raise self._failed(f"failed in a call of {name!r}: {_said(e)}") from e
        if len(text) > MOST_TEXT:
            raise self._failed(
                f"answered the call of {name!r} with {len(text)} characters; at most {MOST_TEXT} "
                "can be read"
            )
        text = cut(text, self._cfg.max_result)
        if is_error:
            raise (ToolError if self._fits(name, arguments) else InvalidCallError)(text)
        return text

    def _fits(self, name: str, arguments: dict[str, Any]) -> bool:
        """Return whether a refused call fits the schema, so that the server had another reason."""
        from jsonschema import Draft202012Validator  # the client needs both too
        from jsonschema.exceptions import SchemaError
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        schema = next((tool.parameters for tool in self.tools if tool.name == name), {})
        try:
            Draft202012Validator.check_schema(schema)
            # A registry of its own keeps it from fetching schemas over the network.
            return Draft202012Validator(schema, registry=Registry()).is_valid(arguments)
        except (SchemaError, Unresolvable):
            return True

    async def _answer(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return the result of a call as text, and whether it is an error."""
        if self._resources and self._resources.offers(name):
            return await self._resources.call(name, arguments), False
        result = await self._client.call_tool(name, arguments)
        return _text(result), result.is_error

    async def check(self) -> None:
        """Raise ServerError if the server is gone, or offers other tools than at the start."""
        try:
            async with asyncio.timeout(self._cfg.call_timeout):
                now = await self.list_tools()
        except Exception as e:
            raise self._failed(f"no longer says what tools it has: {_said(e)}") from None
        if now != self.tools:
            names, before = ({t.name for t in tools} for tools in (now, self.tools))
            more, less = ", ".join(sorted(names - before)), ", ".join(sorted(before - names))
            what = f"{f'; new: {more}' if more else ''}{f'; gone: {less}' if less else ''}"
            raise self._failed(f"changed its tools in the middle of the episode{what}")

    def _failed(self, what: str) -> ServerError:
        return ServerError(f"the MCP server {named(self._cfg)} {what}{printed(self._log)}")


@asynccontextmanager
async def connected(cfg: McpSettings) -> AsyncIterator[Server]:
    """Start or reach a server, and yield it once its tools are known.

    Raise UsageError with the server's output if that fails or takes too long.
    """
    failure: UsageError | None = None
    async with AsyncExitStack() as stack:
        log = None
        try:
            if cfg.command is not None:
                log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (it is)
            server = await _opened(cfg, stack, log)
        except UsageError as e:
            failure = e
        except TimeoutError:
            seconds = f"{cfg.start_timeout:g} s (env.args.start_timeout)"
            failure = UsageError(
                f"the MCP server {named(cfg)} did not answer within {seconds}{printed(log)}"
            )
        except Exception as e:
            what = f"cannot be used: {_said(e)}{printed(log)}"
            failure = UsageError(f"the MCP server {named(cfg)} {what}")
        else:
            yield server
    if failure:  # raised here, because a task group would wrap it into an exception group
        raise failure


async def _opened(cfg: McpSettings, stack: AsyncExitStack, log: IO[bytes] | None) -> Server:
    try:  # in a thread: it takes half a second, which would block other episodes
        mcp = await asyncio.to_thread(import_module, "mcp")
    except ModuleNotFoundError:
        raise UsageError(f"the env mcp needs the package mcp: {INSTALL}") from None
    transport = await _http(cfg, stack) if log is None else _stdio(cfg, log)
    async with asyncio.timeout(cfg.start_timeout):
        client = await stack.enter_async_context(mcp.Client(transport))
        server = Server(cfg, client, log)
        server.tools = await server.list_tools()
        return server


def named(cfg: McpSettings) -> str:
    """Return the server's name in messages."""
    if cfg.url is not None:
        return cfg.url
    return cfg.command if isinstance(cfg.command, str) else shlex.join(cfg.command or ())


def printed(log: IO[bytes] | None) -> str:
    """Return the last output of a server, to be appended to a message."""
    if log is None:
        return ""
    raw = os.pread(log.fileno(), 4 * SHOWN, max(0, os.fstat(log.fileno()).st_size - 4 * SHOWN))
    text = raw.decode(errors="replace")[-SHOWN:].strip()
    return f"; it printed:\n{text}" if text else "; it printed nothing"


def _stdio(cfg: McpSettings, log: IO[bytes]) -> Any:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    assert cfg.command is not None
    try:
        words = shlex.split(cfg.command) if isinstance(cfg.command, str) else [*cfg.command]
    except ValueError as e:
        raise UsageError(f"env.args.command: {cfg.command!r} is no line of words: {e}") from None
    words = [word.replace("{python}", sys.executable) for word in words]
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"env.args.command: there is no program {(words or [''])[0]!r}")
    if missing := [name for name in cfg.pass_env if name not in os.environ]:
        raise UsageError(f"env.args.pass_env: {', '.join(missing)} is not set")
    command, *rest = guarded(words, limit=MOST_PRINTED, grace=GRACE)
    file: Any = log  # a process only needs the file descriptor
    passed = {name: os.environ[name] for name in cfg.pass_env}
    return stdio_client(StdioServerParameters(command=command, args=rest, env=passed), errlog=file)


async def _http(cfg: McpSettings, stack: AsyncExitStack) -> Any:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    assert cfg.url is not None
    http = await stack.enter_async_context(create_mcp_http_client(headers=dict(cfg.headers)))
    return streamable_http_client(cfg.url, http_client=http)


def _tool(tool: Any) -> Tool:
    hints = tool.annotations
    # MCP's defaults: a tool may write unless it is marked read-only, and destroy unless it says
    # otherwise.
    only_reads = hints is not None and hints.read_only_hint is True and not hints.destructive_hint
    return Tool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.input_schema,
        writes=not only_reads,
    )


def _text(result: Any) -> str:
    """Return the contents of a result as text, with the type of contents that are not text.

    Structured content mostly repeats the text, as MCP advises. It is added if the text lacks one of
    its values.
    """
    parts: list[str] = []
    for block in result.content:
        text = getattr(block, "text", None) or getattr(
            getattr(block, "resource", None), "text", None
        )
        kind = getattr(block, "mime_type", None) or block.type
        where = getattr(block, "uri", "")
        parts.append(text if isinstance(text, str) else f"[{kind}{f' {where}' if where else ''}]")
    said, structured = "\n".join(parts), result.structured_content
    if structured is None:
        return said
    if not parts or not all(_stands_in(value, said) for value in _values(structured)):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return "\n".join(parts)


def _values(value: Any) -> Iterator[Any]:
    """Yield all values that are neither objects nor lists."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _values(each)
    else:
        yield value


def _stands_in(value: Any, text: str) -> bool:
    written = [value] if isinstance(value, str) else []
    written += [json.dumps(value, ensure_ascii=is_ascii).strip('"') for is_ascii in (True, False)]
    return any(each in text for each in (*written, str(value)))


def _said(error: BaseException) -> str:
    """Return the first error, because task groups raise exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
