"""Calls of a language's functions from within the walls, one after another.

What each call came to is written on descriptor RESULTS as JSON lines: {"i": its number, and
"value" or "error"}. Expected values are not known in here: whoever can write a right answer has
computed it. Used in the runner's process, which has the standard library alone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

RESULTS = 3
SHOWN = 300  # characters of an error

NODE = r"""
const fs = require('fs');
const [folder] = process.argv.slice(1);
const calls = JSON.parse(fs.readFileSync(0, 'utf8'));
const plain = (key, v) =>
  v === undefined ? '<undefined>'
  : typeof v === 'number' && !Number.isFinite(v) ? `<${v}>`
  : typeof v === 'bigint' || typeof v === 'function' || typeof v === 'symbol' ? `<${typeof v}>`
  : v;
calls.forEach((call, i) => {
  let out;
  try {
    const found = require(`${folder}/${call.module}.js`)[call.name];
    let value;
    if (call.steps) {
      const made = new found(...call.args);
      value = call.steps.map(([method, ...args]) => {
        const given = made[method](...args);
        return given === undefined ? null : given;
      });
    } else {
      value = found(...call.args);
    }
    out = JSON.stringify({ i, value: value === undefined ? '<undefined>' : value }, plain);
  } catch (e) {
    out = JSON.stringify({ i, error: `${e && e.name}: ${e && e.message}`.slice(0, 300) });
  }
  fs.writeSync(3, out + '\n');
});
"""

BASH = r"""
set -f
folder=$1 sourced=
while IFS= read -r -d '' module && IFS= read -r -d '' name && IFS= read -r -d '' count; do
  arguments=()
  for ((at = 0; at < count; at++)); do IFS= read -r -d '' one; arguments+=("$one"); done
  if [[ $sourced != "$module" ]]; then . "$folder/$module.sh"; sourced=$module; fi
  REPLY=
  "$name" "${arguments[@]}" </dev/null
  printf '%s\0' "$REPLY" >&3
done
"""


def command(language: str, program: str, folder: str) -> list[str]:
    """Return the words that start a language's program `program` on the repository in `folder`."""
    if language == "bash":
        return [program, "--noprofile", "--norc", "-c", BASH, "bash", folder]
    sizes = ["--max-old-space-size=96", "--v8-pool-size=1"]
    return [program, *sizes, "-e", NODE, folder]


def as_input(language: str, calls: list[dict[str, Any]]) -> bytes:
    """Return what the started program reads: its calls."""
    if language != "bash":
        return json.dumps(calls).encode()
    words: list[str] = []
    for call in calls:
        words += [call["module"], call["name"], str(len(call["args"])), *map(in_bash, call["args"])]
    return b"".join(word.encode(errors="replace") + b"\0" for word in words)


def as_json(language: str, written: bytes) -> str:
    """Return what was written on RESULTS as JSON lines, whatever the language."""
    if language != "bash":
        return written.decode(errors="replace")
    values = written.decode(errors="replace").split("\0")[:-1]
    return "\n".join(json.dumps({"i": i, "value": value}) for i, value in enumerate(values))


def in_bash(value: Any) -> str:
    """Return a value as a shell has it: a text, or words parted by blanks."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(map(in_bash, value)) if isinstance(value, list) else str(value)


def play_python(folder: str, calls: list[dict[str, Any]]) -> None:
    """Make the calls in this process, which is a fresh copy of the runner."""
    sys.path[0] = folder  # where the runner's own modules were
    for i, call in enumerate(calls):
        try:
            found = getattr(importlib.import_module(call["module"]), call["name"])
            out = {"i": i, "value": _value(found, call)}
            line = json.dumps(out)
        except BaseException as e:  # SystemExit too
            line = json.dumps({"i": i, "error": f"{type(e).__name__}: {e}"[:SHOWN]})
        os.write(RESULTS, line.encode() + b"\n")


def _value(found: Any, call: dict[str, Any]) -> Any:
    if "steps" not in call:
        return found(*call["args"])
    made = found(*call["args"])
    return [getattr(made, method)(*args) for method, *args in call["steps"]]
