"""Write docs/config.md's reference from art_cli/config/: every section, key and default.

    python scripts/config_reference.py

A test fails where the page is not what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import get_type_hints

from art_cli.config import agent, llm, schema, targets
from art_cli.config.marks import OnlyWith

PAGE = Path(__file__).parents[1] / "docs" / "config.md"
MARK = "<!-- From here on the page is made by scripts/config_reference.py. -->\n"
# What stands where a section is a part of another one, or stands for the arguments of a target.
SECTIONS = {
    "": schema.Experiment,
    "env": schema.EnvConfig,
    "agent": agent.AgentConfig,
    "agent.train": agent.TrainedConfig,
    "model": schema.ModelConfig,
    "model.adapter": schema.AdapterConfig,
    "model.tiny": schema.TinyConfig,
    "warmup": schema.WarmupConfig,
    "engine": schema.EngineConfig,
    "sampling": schema.SamplingConfig,
    "judge": schema.JudgeConfig,
    "judge.prices": llm.PricesConfig,
    "reward": schema.RewardConfig,
    "train": schema.TrainConfig,
    "eval": schema.EvalConfig,
    "checkpoint": schema.CheckpointConfig,
    "track.wandb": schema.WandbConfig,
    "backend": schema.BackendConfig,
    "deploy": schema.DeployConfig,
    **{f"deploy.args, to: {name}": cls for name, cls in targets.TARGETS.items()},
}
WORDS = {
    "Count": "integer from 1",
    "CountOrZero": "integer from 0",
    "Positive": "number above 0",
    "NonNegative": "number from 0",
    "Name": "name: letters, digits and . _ -",
    "Share": "number above 0, to 1",
    "Url": "address: http:// or https://",
    "Address": "HOST:PORT",
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "None": "null",
    "Any": "anything",
    "ToolFormatName": "auto, or [the name of a format](models.md#tool-calls-and-thinking)",
}


def reference() -> str:
    """Return the tables, in Markdown."""
    return "\n".join(_section(name, cls) for name, cls in SECTIONS.items())


def _section(name: str, cls: type) -> str:
    title = f"## {f'`{name}`' if name else 'The top of the file'}\n"
    rows = [row for f in fields(cls) if (row := _row(cls, f, _comments(cls)))]
    about = inspect.cleandoc(cls.__doc__ or "")
    if not rows:
        return f"{title}\n{about} It has no settings.\n"
    table = ["| key | what it takes | default | |", "|---|---|---|---|", *rows]
    return f"{title}\n{about}\n\n" + "\n".join(table) + "\n"


def _row(cls: type, field: Field, comments: dict[str, str]) -> str:
    kind = _kind(ast.parse(str(field.type), mode="eval").body)
    about = ". ".join(filter(None, [comments.get(field.name, "").rstrip("."), _needs(cls, field)]))
    return f"| `{field.name}` | {kind} | {_default(field)} | {about} |".replace("|  |", "| |")


def _needs(cls: type, field: Field) -> str:
    hint = get_type_hints(cls, include_extras=True)[field.name]
    marks = [m for m in getattr(hint, "__metadata__", ()) if isinstance(m, OnlyWith)]
    return " ".join(f"Only with `{m.key}` {' or '.join(m.values)}" for m in marks)


def _default(field: Field) -> str:
    if field.default is not MISSING:
        return f"`{_yaml(field.default)}`"
    if field.default_factory is MISSING:
        return "from the file's name" if field.name == "name" else "**needed**"
    made = field.default_factory()
    return "as in its section" if hasattr(made, "__dataclass_fields__") else f"`{_yaml(made)}`"


def _yaml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    known = {None: "null", True: "true", False: "false"}
    return known[value] if value is None or isinstance(value, bool) else str(value)


def _kind(node: ast.expr) -> str:
    """Return a type as a user says it."""
    if isinstance(node, ast.BinOp):
        return f"{_kind(node.left)} or {_kind(node.right)}"
    if isinstance(node, ast.Constant):
        return WORDS[str(node.value)]
    if isinstance(node, ast.Name):
        if node.id == "LossName":
            return _kind(_assigned("LossName"))
        return "a section" if node.id.endswith("Config") else WORDS[node.id]
    assert isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name), ast.dump(node)
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if node.value.id == "Literal":
        return ", ".join(f"`{ast.literal_eval(each)}`" for each in inside)
    if node.value.id == "Annotated":
        ranges = [_range(n) for n in inside[1:] if ast.unparse(n).startswith("Field(")]
        return " ".join([_kind(inside[0]), *ranges])
    if node.value.id == "list":
        return f"list of: {_kind(inside[0])}"
    return "mapping"


def _range(limits: ast.expr) -> str:
    assert isinstance(limits, ast.Call)
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below", "multiple_of": "multiple of"}
    words["min_length"] = "at least"
    names = {"MIN_MICROBATCH_TOKENS": schema.MIN_MICROBATCH_TOKENS, "2 ** 31": 2**31}
    given = {str(k.arg): ast.unparse(k.value) for k in limits.keywords}
    return ", ".join(f"{words[k]} {names.get(v, v)}" for k, v in given.items())


def _assigned(name: str) -> ast.expr:
    for node in ast.parse(inspect.getsource(schema)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise LookupError(name)


def _comments(cls: type) -> dict[str, str]:
    """Return what the comments behind the fields say, or those in the line before."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__[:-1]):
        before = ""
        for line in inspect.getsource(each).splitlines():
            if comment := re.match(r"    # (.*)", line):
                before = comment[1]
            elif named := re.match(r"    (\w+): .*?(?:  # (.*))?$", line):
                found[named[1]] = (named[2] or before).replace("|", "or")
                before = ""
    return found


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n{reference()}", encoding="utf-8")
