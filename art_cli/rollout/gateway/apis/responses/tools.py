"""Conversion of client-side tools to functions for the policy, and of its calls to items.

    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}
                                    crm__find(...)        function_call with a namespace
    {"type": "custom", "name": "sql"}   sql(input)        custom_tool_call
    {"type": "shell"}                   shell(commands)   shell_call

Codex puts the tools of each MCP server into a namespace, and patches files with a custom tool.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from art_cli.rollout.gateway.apis.custom_tool import custom_function, custom_input
from art_cli.rollout.gateway.apis.request_body import MAX_TOOLS, validated
from art_cli.rollout.gateway.asked import AnsweredCall, RequestError

HOSTED = "only OpenAI can run it; give the agent a function that does the same"
DROP = "leave such tools out with agent.hosted_tools: drop"
TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
NUMBER = {"type": "integer"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


# The arguments of tools that have their own type, as OpenAI's package 3.57 describes their calls.
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "shell": (
        "Run shell commands, each by itself.",
        _object(["commands"], commands=TEXTS, timeout_ms=NUMBER, max_output_length=NUMBER),
    ),
    "local_shell": (
        "Run a command, given as its words.",
        _object(["command"], command=TEXTS, timeout_ms=NUMBER, working_directory=TEXT),
    ),
    "apply_patch": (
        "Create, update or delete a file.",
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=TEXT,
            diff={"type": "string", "description": "The change as a V4A diff."},
        ),
    ),
}


class RequestTool(BaseModel):
    """A tool in the form of a request."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None  # of a custom tool's input
    tools: list[RequestTool] | None = None  # of a namespace
    environment: dict[str, Any] | None = None  # of a shell


class _AddedTools(BaseModel):
    tools: Annotated[list[RequestTool], Field(max_length=MAX_TOOLS)]


class Chosen(BaseModel):
    """A tool that `tool_choice` names."""

    type: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs."""

    tool: RequestTool
    namespace: str | None = None

    @property
    def name(self) -> str:
        """The name of the tool that the policy sees."""
        return shown_name(self.tool.name or self.tool.type, self.namespace)

    def function(self) -> dict[str, Any]:
        """Convert the tool to a function."""
        tool = self.tool
        made: dict[str, Any] = {"name": self.name, "description": tool.description}
        if tool.type == "custom":
            form = tool.format or {}
            grammar = form if form.get("type") == "grammar" else None
            made = custom_function(self.name, tool.description, grammar)
        elif tool.type in PUBLISHED:
            made["description"], made["parameters"] = PUBLISHED[tool.type]
        else:
            made |= {"parameters": tool.parameters, "strict": tool.strict}
        kept = {key: value for key, value in made.items() if value is not None}
        return {"type": "function", "function": kept}

    def item(self, call: AnsweredCall) -> dict[str, Any]:
        """Convert a call of this tool to the response item that its client expects."""
        tool = self.tool
        item = _ITEMS.get(tool.type, _function_call)(call.arguments)
        if tool.type in ("function", "custom"):
            item["name"] = tool.name
            item |= {"namespace": self.namespace} if self.namespace else {}
        return {"id": f"{_IDS[item['type']]}_{secrets.token_hex(16)}", "call_id": call.id, **item}


def shown_name(name: str, namespace: str | None) -> str:
    """Return the policy's name for a tool of a namespace."""
    return f"{namespace}__{name}" if namespace else name


def added_tools(items: list[dict[str, Any]]) -> dict[str, RequestTool]:
    """Return the tools of `additional_tools` items by place in the request. Raises RequestError."""
    found: dict[str, RequestTool] = {}
    for number, item in enumerate(items):
        if item.get("type") != "additional_tools":
            continue
        tools = validated(_AddedTools, item, f"input.{number}").tools
        found |= {f"input.{number}.tools.{n}": tool for n, tool in enumerate(tools)}
    return found


def client_tools(tools: dict[str, RequestTool], *, drops_hosted: bool) -> dict[str, ClientTool]:
    """Map the names that the policy sees to tools, which are given by place in the request.

    Raises RequestError.
    """
    found: dict[str, ClientTool] = {}
    for where, tool in tools.items():
        for each in _flat(tool, where, drops_hosted=drops_hosted):
            if each.name in found and each != found[each.name]:
                raise RequestError(400, f"{where}: two tools are called {each.name!r:.200}")
            found[each.name] = each
    return found


def named(chosen: Chosen, tools: dict[str, ClientTool]) -> str:
    """Return the policy's name for a tool that `tool_choice` names."""
    wanted = chosen.name or chosen.type
    if wanted in tools:
        return wanted
    return next((name for name, each in tools.items() if each.tool.name == wanted), wanted)


def call_of(item: dict[str, Any]) -> tuple[str, Any] | None:
    """Return the name and arguments of a call item in a history; None for other items."""
    kind = item.get("type")
    if kind == "function_call":
        return shown_name(str(item.get("name")), item.get("namespace")), item.get("arguments")
    if kind == "custom_tool_call":
        name = shown_name(str(item.get("name")), item.get("namespace"))
        return name, {"input": item.get("input")}
    key = {"shell_call": "action", "local_shell_call": "action", "apply_patch_call": "operation"}
    if kind not in key:
        return None
    said = item.get(key[kind])
    given = {k: v for k, v in said.items() if v is not None} if isinstance(said, dict) else {}
    name = kind.removesuffix("_call")
    known = PUBLISHED[name][1]["properties"]
    return name, {k: v for k, v in given.items() if k in known}


def result_of(item: dict[str, Any], text_of: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Convert a result item in a history to a tool's message; None for other items."""
    kind = item.get("type")
    if kind not in _RESULTS:
        return None
    given = item.get("output")
    if kind == "shell_call_output" and isinstance(given, list):
        given = "\n".join(map(_ran, given))
    elif kind == "apply_patch_call_output":
        given = given or item.get("status")
    id = item.get("call_id") or item.get("id")
    message = {"role": "tool", "tool_call_id": id, "content": text_of(given)}
    return message | {"is_error": True} if item.get("status") == "failed" else message


_RESULTS = (
    *("function_call_output", "custom_tool_call_output", "shell_call_output"),
    *("local_shell_call_output", "apply_patch_call_output"),
)


def _flat(tool: RequestTool, where: str, *, drops_hosted: bool) -> Iterator[ClientTool]:
    if tool.type == "namespace":
        if not tool.name:
            raise RequestError(400, f"{where}.name: Field required")
        for number, each in enumerate(tool.tools or []):
            if each.type not in ("function", "custom") or not each.name:
                here = f"{where}.tools.{number}"
                raise RequestError(400, f"{here}: expected a function or custom tool with a name")
            yield ClientTool(each, tool.name)
    elif tool.type in ("function", "custom"):
        if not tool.name:
            raise RequestError(400, f"{where}.name: Field required")
        yield ClientTool(tool)
    elif tool.type in PUBLISHED and (tool.environment or {}).get("type", "local") == "local":
        yield ClientTool(tool)
    elif not drops_hosted:
        what = f"a tool of type {tool.type!r:.100} cannot be used: {HOSTED}, or {DROP}"
        raise RequestError(400, f"{where}: {what}")


def _function_call(arguments: dict[str, Any]) -> dict[str, Any]:
    said = json.dumps(arguments)
    return {"type": "function_call", "name": "", "arguments": said, "status": "completed"}


def _custom_tool_call(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "custom_tool_call", "name": "", "input": custom_input(arguments)}


def _shell_call(arguments: dict[str, Any]) -> dict[str, Any]:
    limits = {key: arguments.get(key) for key in ("timeout_ms", "max_output_length")}
    action = {"commands": _words(arguments.get("commands")), **limits}
    local = {"environment": {"type": "local"}, "status": "completed"}
    return {"type": "shell_call", "action": action, **local}


def _local_shell_call(arguments: dict[str, Any]) -> dict[str, Any]:
    more = {key: arguments.get(key) for key in ("timeout_ms", "working_directory")}
    action = {"type": "exec", "command": _words(arguments.get("command")), "env": {}, **more}
    return {"type": "local_shell_call", "action": action, "status": "completed"}


def _apply_patch_call(arguments: dict[str, Any]) -> dict[str, Any]:
    operation = {key: arguments[key] for key in ("type", "path", "diff") if key in arguments}
    return {"type": "apply_patch_call", "operation": operation, "status": "completed"}


_ITEMS = {
    "custom": _custom_tool_call,
    "shell": _shell_call,
    "local_shell": _local_shell_call,
    "apply_patch": _apply_patch_call,
}


_IDS = {
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "shell_call": "sh",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
}


def _words(given: Any) -> list[str]:
    return [str(each) for each in (given if isinstance(given, list) else [given])]


def _ran(output: Any) -> str:
    """Return one shell command's output and exit code as text."""
    if not isinstance(output, dict):
        return str(output)
    outcome = output.get("outcome") or {}
    ended = f"exit code {outcome.get('exit_code')}"
    said = f"{output.get('stdout') or ''}{output.get('stderr') or ''}".rstrip("\n")
    return f"{said}\n[{'timed out' if outcome.get('type') == 'timeout' else ended}]".lstrip("\n")
