"""The W&B server: whether it is to be used, whether it answers. Does not import wandb."""

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
    """Return the mode, and why where it is not the best. Does not import wandb or touch the
    network.

    Raises PreflightError for mode `online` without a key: call it before anything costly starts.
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
    """Return the W&B server."""
    return os.environ.get("WANDB_BASE_URL", DEFAULT_URL).rstrip("/")


def has_key() -> bool:
    """Return whether wandb will find a key, or another way to log in."""
    return bool(find_key() or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"))


def find_key() -> str | None:
    """Return the key that wandb will find: in the environment, or where `wandb login` writes it."""
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
    """True if its API says anything at all, an error too, in time. Name resolution can hang, too.

    It is asked a question: a proxy may greet for a server that is dead.
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
    except Exception:  # of many kinds: DNS, TLS, refused, too late, not HTTP
        return False
