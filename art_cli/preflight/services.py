"""Checks of API keys and servers.

Of a key, only its presence is checked, never its value. All servers are contacted at once, and each
has a few seconds to answer.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from art_cli.config.schema import Experiment
from art_cli.config.sections.llm import REFERENCE, LLMConfig
from art_cli.llms.judges.build import KEYS, key_of
from art_cli.llms.services import models_of_env
from art_cli.llms.stand_in import STAND_IN
from art_cli.preflight.check_result import CheckResult, failed, ok, warning
from art_cli.preflight.memory.shape import HUB, local_config
from art_cli.runs.trackers.wandb.server import base_url, has_key

SECONDS = 5.0  # for a server to answer, name resolution included
HOSTS = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "openrouter": "https://openrouter.ai",
    "groq": "https://api.groq.com",
    "mistral": "https://api.mistral.ai",
    "deepseek": "https://api.deepseek.com",
    "xai": "https://api.x.ai",
}
OTHER_KEYS = ("HF_TOKEN", "WANDB_API_KEY", "TOGETHER_API_KEY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A server that a run would contact."""

    name: str
    url: str
    needed: str = ""  # the part of the run that needs it; "": none


def models_asked(cfg: Experiment, settings: Any) -> dict[str, LLMConfig]:
    """Return the models behind an API, by their name in the config."""
    found: dict[str, LLMConfig] = {"judge": cfg.judge} if cfg.judge else {}
    found |= models_of_env(cfg.env, settings)
    return {name: llm for name, llm in found.items() if llm.model not in (REFERENCE, STAND_IN)}


def check_keys(llms: dict[str, LLMConfig]) -> Iterator[CheckResult]:
    """Report the keys that are set, and those that these models need but are not set."""
    names = (*KEYS.values(), *OTHER_KEYS)
    present = [name for name in names if os.environ.get(name)]
    yield ok(f"set: {', '.join(present)}" if present else "none is set")
    for section, cfg in llms.items():
        key = key_of(cfg)
        if key and not os.environ.get(key):
            yield failed(
                f"{section} ({cfg.model}) needs {key}, which is not set",
                todo=f"put {key}=... into .env, or name another variable: {section}.api_key_env",
            )


def servers(cfg: Experiment | None, llms: dict[str, LLMConfig]) -> list[Service]:
    """Return the servers that a run would contact. Without a config, those with a key set here."""
    hub = os.environ.get("HF_ENDPOINT", HUB)
    if cfg is None:
        keyed = [p for p, key in KEYS.items() if os.environ.get(key)]
        found = [Service(name="Hugging Face", url=hub)]
        found += [Service(name=provider, url=HOSTS[provider]) for provider in keyed]
        return [*found, *([Service(name="W&B", url=base_url())] if has_key() else [])]
    found = []
    if cfg.model.base != "tiny" and local_config(cfg.model.base) is None:
        found.append(Service(name="Hugging Face", url=hub, needed=f"{cfg.model.base} to download"))
    if cfg.engine.url:
        found.append(Service(name="engine.url", url=cfg.engine.url, needed="every rollout"))
    if cfg.agent.url:
        found.append(Service(name="agent.url", url=cfg.agent.url, needed="every episode"))
    for section, llm in llms.items():
        provider = llm.model.partition("/")[0]
        url = llm.api_base or HOSTS.get(provider)
        if url and not llm.command:
            found.append(Service(name=section, url=url, needed=llm.model))
    if cfg.track.wandb and cfg.track.wandb.mode in ("auto", "online"):
        needed = "mode online" if cfg.track.wandb.mode == "online" else ""
        found.append(Service(name="W&B", url=base_url(), needed=needed))
    otlp, mlflow = cfg.track.otlp, cfg.track.mlflow
    to = {
        "track.otlp": otlp and (otlp.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")),
        "track.mlflow": mlflow and (mlflow.uri or os.environ.get("MLFLOW_TRACKING_URI")),
    }
    found += [Service(name=n, url=url) for n, url in to.items() if url and url.startswith("http")]
    return found


def check_servers(found: list[Service]) -> Iterator[CheckResult]:
    """Contact all servers at once. Any HTTP response counts as an answer."""
    answers: dict[Service, str] = {}

    def ask(server: Service) -> None:
        answers[server] = _ask(server.url)

    # Threads of our own instead of a pool: name resolution has no deadline, and at exit Python
    # waits for the threads of a pool.
    threads = [threading.Thread(target=ask, args=(s,), daemon=True) for s in found]
    for thread in threads:
        thread.start()
    until = time.monotonic() + SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    for server in found:
        why = answers.get(server, f"no answer within {SECONDS:g} s")
        where = f"{server.name} ({_host(server.url)})"
        if not why:
            yield ok(f"{where} answers")
        elif server.needed:
            yield failed(
                f"{where} does not answer: {why}",
                todo=f"it is needed for {server.needed}; is it running, is a proxy needed?",
            )
        else:
            yield warning(f"{where} does not answer: {why}")


def _ask(url: str) -> str:
    """Return the reason why there is no answer, or ""."""
    try:
        is_here = httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
        httpx.get(url, timeout=SECONDS, trust_env=not is_here)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as e:
        return str(e) or type(e).__name__
    return ""


def _host(url: str) -> str:
    """Return a URL's host and port, without parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
