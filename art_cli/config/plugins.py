"""Values that name code of the user's own: a plugin of one of the families.

FILE.py:NAME           a file, relative to the folder that art is started in
package.module:NAME    a module that can be imported
NAME                   an entry point in the group art.FAMILY of an installed package
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

FAMILIES = (
    *("envs", "agents", "engines", "judges", "trackers", "targets"),
    *("losses", "advantages", "samplers"),
)
PATTERN = r"^[^:]+:[A-Za-z_]\w*$"
FORM = "FILE.py:NAME"  # what these are called in a sentence


@dataclass(frozen=True, slots=True)
class Plugin:
    """Marks text that names a plugin. The name of an entry point is read as what it stands for."""

    family: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        names = [{"enum": [*found]}] if (found := registered(self.family)) else []
        return {"anyOf": [{"type": "string", "pattern": PATTERN}, *names]}

    def read(self, name: str) -> str:
        """Return `module:NAME` for the name of an entry point. Raises PydanticCustomError."""
        found = registered(self.family)
        file, colon, last = name.rpartition(":")
        if name in found or (colon and file and ":" not in file and last.isidentifier()):
            return found.get(name, name)
        known = f" or one of {', '.join(found)}" if found else ""
        raise PydanticCustomError("plugin", "{expected}", {"expected": f"{FORM}{known}"})


@lru_cache
def registered(family: str) -> dict[str, str]:
    """Return the entry points of a family, by name: what each stands for, `module:NAME`."""
    found = entry_points(group=f"art.{family}")
    return {e.name: e.value for e in sorted(found, key=lambda e: e.name)}


def is_plugin(name: Any) -> bool:
    """Return whether a value names a plugin, of whatever family."""
    return isinstance(name, str) and (":" in name or any(name in registered(f) for f in FAMILIES))
