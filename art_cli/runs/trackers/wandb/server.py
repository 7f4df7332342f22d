"""The W&B server: whether to use it, and whether it answers. Does not import wandb."""

from __future__ import annotations

import netrc
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from art_cli.config.sections.track import WandbConfig
from art_cli.errors import PreflightError
from art_cli.system.deadline import within

Mode = Literal["online", "offline", "disabled"]

PROBE_SECONDS = 5.0
DEFAULT_URL = "https://api.wandb.ai"


def choose_mode(cfg: WandbConfig) -> tuple[Mode, str]:
    """Return the mode, and the reason if it is not online. Uses neither wandb nor the network.

    Raises PreflightError for mode `online` without a key. Call it before anything costly starts.
    """
    wish = cfg.mode
    if wish == "auto" and os.environ.get("WANDB_MODE") in ("offline", "disabled"):
        return (
            ("offline", "WANDB_MODE") if os.environ["WANDB_MODE"] == "offline" else ("disabled", "")
        )
    if wish in ("offline", "disabled"):
        return wish, f"track.wandb.mode is {wish}"
    if has_key():
        return "online", ""
    if wish == "auto":
        return "offline", "no key: neither WANDB_API_KEY nor `wandb login`"
    raise PreflightError(
        f"track.wandb.mode is online but there is no key for {base_url()}. "
        "Set WANDB_API_KEY, run `wandb login`, or use mode auto, which logs offline without a key."
    )


def base_url() -> str:
    """Return the URL of the W&B server."""
    return os.environ.get("WANDB_BASE_URL", DEFAULT_URL).rstrip("/")


def has_key() -> bool:
    """Return whether wandb will find a key, or another way to log in."""
    return bool(find_key() or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"))


def find_key() -> str | None:
    """Return the key that wandb will find: in the environment, or in the file of `wandb login`."""
    if key := os.environ.get("WANDB_API_KEY"):
        return key
    candidates = [os.environ.get("NETRC"), "~/.netrc", "~/_netrc"]
    for path in (Path(name).expanduser() for name in candidates if name):
        if path.exists():
            try:
                login = netrc.netrc(path).authenticators(urlsplit(base_url()).netloc)
            except (netrc.NetrcParseError, OSError):
                return None
            return login[2] if login else None
    return None


def answers(url: str) -> bool:
    """Return whether the server's API answers in time, even with an error.

    Sends an API request, because a proxy may accept connections for a dead server. The deadline
    also covers name resolution, which can hang.
    """
    question = urllib.request.Request(
        f"{url}/graphql",
        data=b'{"query": "{ __typename }"}',
        headers={"content-type": "application/json"},
    )

    def ask() -> bool:
        try:
            urllib.request.urlopen(question, timeout=PROBE_SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
        return True

    try:
        return within(PROBE_SECONDS, ask)
    except Exception:  # many types: DNS, TLS, refused, too late, not HTTP
        return False
