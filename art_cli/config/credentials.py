"""Detection of keys and passwords in a config, which would be copied to the run directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from art_cli.config.explain import Mistake
from art_cli.config.problem import KeyPath
from art_cli.config.yaml import leaves
from art_cli.terminal.text import hide

# Names of keys: in any mapping; in the settings of requests to a model; in cluster variables.
_ANYWHERE = re.compile(r"(?:x[-_])?api[-_]?key|(?:proxy[-_])?authorization", re.IGNORECASE)
_IN_REQUEST = re.compile(
    r"(?:.*[-_])?(?:(?:api|access|subscription)[-_]?key|token|secret|password|credentials?|auth"
    r"|authorization|cookie)",
    re.IGNORECASE,
)
_IN_HEADERS = re.compile(r"(?:.*[-_])?(?:key|team|dsn)", re.IGNORECASE)  # x-honeycomb-team
_VARIABLE = re.compile(r"(?:.*_)?(?:KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)
_LOGIN = re.compile(r"\w://[^/\s:@'\"]*:([^/\s@'\"]+)@|https?://([^/\s:@'\"]+)@")
_QUERY = re.compile(
    r"\w://[^\s'\"]*[?&](?:(?:api|access)?[-_]?key|(?:\w+[-_])?token|secret|password|sig|signature)"
    r"=([^&#\s'\"]+)",
    re.IGNORECASE,
)
_INTERPOLATION = re.compile(r"\$\{[^${}]*\}")
_SCHEME = re.compile(r"\s*(?:Bearer|Basic|Token)\b", re.IGNORECASE)
_REMEDY = "and this config is written to the run directory; put it into an environment variable and"


def written_credentials(config: Any) -> Iterator[Mistake]:
    """Yield a mistake for each key, password or header with one in a config as written.

    `${oc.env:NAME}` is allowed instead. Secrets that are found are never printed.
    """
    for path, value in leaves(config):
        if not isinstance(value, str):
            continue
        text = _without_interpolations(value)
        if _names_one(path) and (secret := _SCHEME.sub("", text, count=1).strip()):
            hide(secret, "***")
            message = f"holds a key, {_REMEDY} {_instead(path)}"
            yield Mistake(path, "value", message, is_secret=True)
        elif found := _LOGIN.search(text) or _QUERY.search(text):
            hide(next(filter(None, found.groups())), "***")
            what = "a password" if found.re is _LOGIN else "a key"
            message = f"holds {what} in a URL, {_REMEDY} write ${{oc.env:NAME}} here"
            yield Mistake(path, "value", message, is_secret=True)


def _names_one(path: KeyPath) -> bool:
    """Return whether the name at the end of the path is that of a key or password."""
    name, above = str(path[-1]) if path else "", [str(part) for part in path[:-1]]
    if above == ["backend", "envs"]:
        return bool(_VARIABLE.fullmatch(name))
    is_header = any(part.lower().endswith("headers") for part in above)
    if is_header and _IN_HEADERS.fullmatch(name):
        return True
    is_of_request = is_header or "params" in above
    return bool((_IN_REQUEST if is_of_request else _ANYWHERE).fullmatch(name))


def _instead(path: KeyPath) -> str:
    if path[:2] == ("backend", "envs"):
        return f"name that in backend.secrets: [{path[-1]}]"
    if path[-2:] == ("params", "api_key"):
        return f"name that in {'.'.join(map(str, path[:-2]))}.api_key_env"
    return "write ${oc.env:NAME} here"


def _without_interpolations(text: str) -> str:
    while (shorter := _INTERPOLATION.sub("", text)) != text:
        text = shorter
    return text
