"""A server on this machine that speaks OpenAI's protocol: vLLM, or the embedded engine.

It is a process of its own. It ends with the `art deploy` that started it, however that ends; after
`art deploy --no-wait` it stays, and ends with `art undeploy`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import httpx

from art_cli.config.sections.deploy import ServeConfig
from art_cli.deploy.base import Deployment, Job, Plan, Source
from art_cli.deploy.chat_template import parser_words
from art_cli.deploy.store import Store
from art_cli.deploy.targets.merged import WEIGHTS, make_merged, merged_words, remove_merged
from art_cli.deploy.targets.serve.access import HOST, KEY, is_loopback
from art_cli.deploy.targets.serve.process import LOG, ServerProcess, end_process, is_alive
from art_cli.errors import ArtError, PreflightError

START_TIMEOUT = 600.0  # seconds: vLLM compiles
FREE_TIMEOUT = 15.0  # until the port of a process that was killed is free
ANSWER_TIMEOUT = 5.0
PAUSE = 0.2
EVERYWHERE = ("0.0.0.0", "::")
SHOWN = 2000  # characters of what a server that failed has said


class ServeTarget:
    """Implements Target."""

    def __init__(self, settings: ServeConfig) -> None:
        self._port = settings.port
        self._host = settings.host
        self._engine = settings.engine
        self._key_env = settings.key_env
        shown = "127.0.0.1" if settings.host in EVERYWHERE else settings.host
        self._url = f"http://{f'[{shown}]' if ':' in shown else shown}:{settings.port}"

    def plan(self, source: Source, name: str) -> Plan:
        engine, key = self._which(), self._key()
        known = Store(source.run).find("serve", name)
        if not (known and self._is_at(known)) and not self._gets_free(known):
            raise PreflightError(f"port {self._port} is in use; choose another: port=8001")
        lines = [("what", merged_words(source)), ("on", engine), ("at", f"{self._url}/v1")]
        lines.append(("key", f"${self._key_env or KEY}" if key else "made, and shown once"))
        if not is_loopback(self._host):
            lines.append(("open to", f"whoever reaches {self._host} and has the key"))
        return Plan(
            source=source,
            name=name,
            lines=lines,
            serves=True,
            local=True,
            url=f"{self._url}/v1",
            key_env=self._key_env or KEY,
            details=engine,
        )

    def _key(self) -> str | None:
        """Return the key that the user has chosen."""
        key = os.environ.get(self._key_env or KEY)
        if not key and self._key_env:
            raise PreflightError(
                f"key_env: {self._key_env} is not set; put the server's key into it, or leave "
                "key_env out: then one is made"
            )
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise PreflightError(f"{self._key_env or KEY}: a key is ASCII, without spaces")
        return key

    def _gets_free(self, known: Deployment | None) -> bool:
        """Return whether our port is free, or gets free now that a server of ours has died.

        The threads of a killed process can hold its port for a moment after it counts as dead.
        """
        died = known is not None and known.made.get("port") == self._port
        deadline = time.monotonic() + (FREE_TIMEOUT if died else 0)
        while _is_taken(self._port):
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE)
        return True

    def _is_at(self, known: Deployment) -> bool:
        """Return whether it is the server on our port."""
        return known.made.get("port") == self._port and is_alive(known)

    def _which(self) -> str:
        if self._engine == "transformers":
            return "the embedded engine"
        import torch

        has_vllm, has_gpu = find_spec("vllm") is not None, torch.cuda.is_available()
        if self._engine == "vllm" and not has_vllm:
            raise PreflightError("vLLM is not installed: pip install 'art-cli[vllm]'")
        if self._engine == "vllm" or (has_vllm and has_gpu):
            return "vLLM"
        return "the embedded engine"

    def deploy(self, plan: Plan, job: Job) -> None:
        """See Target. It answers when this returns, `wait` or not."""
        deployment, source = job.deployment, plan.source
        home = Path(deployment.home)
        end_process(deployment)
        make_merged(source, home / WEIGHTS, job)
        chosen = self._key()
        key = chosen or secrets.token_urlsafe(32)
        variables = {KEY: key, HOST: self._host}
        server = ServerProcess(self._command(plan, home / WEIGHTS), variables, deployment)
        try:
            deployment.made["port"] = self._port
            job.keep()
            self._until_answered(server, key, home / LOG, job)
            if not job.wait:
                server.let_go()
                deployment.made["stays"] = True
        except BaseException:
            end_process(deployment)
            raise
        finally:
            server.forget()
        deployment.url, deployment.model = plan.url, plan.name
        deployment.key_env, deployment.key = plan.key_env, None if chosen else key
        deployment.state = "ready"

    def _command(self, plan: Plan, folder: Path) -> list[str]:
        cfg = plan.source.experiment
        room = str(cfg.engine.max_model_len)
        if plan.details != "vLLM":
            most = str(cfg.sampling.max_tokens)
            words = [str(folder), plan.name, str(self._port), room, most]
            return [sys.executable, "-m", "art_cli.deploy.targets.serve.chat_server", *words]
        return [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
            *("--served-model-name", plan.name, "--host", self._host, "--port", str(self._port)),
            *("--middleware", "art_cli.deploy.targets.serve.asgi.Checked"),
            *("--max-model-len", room, *parser_words(folder, cfg.model)),
        ]

    def _until_answered(self, server: ServerProcess, key: str, log: Path, job: Job) -> None:
        began = time.monotonic()
        while _name_at(self._url, key) != job.deployment.name:
            waited, runs = time.monotonic() - began, server.runs
            if not runs or waited > START_TIMEOUT:
                said = log.read_text(errors="replace")[-SHOWN:]
                how = f"said nothing in {waited:.0f} s" if runs else "ended"
                raise ArtError(f"the server {how}; {log} ends with:\n{said}")
            job.report(f"starting the server, {waited:.0f} s")
            time.sleep(PAUSE)

    def state(self, deployment: Deployment) -> str:
        if not is_alive(deployment):
            return "stopped"
        if deployment.url is None:
            return "starting"
        return "ready" if _is_healthy(deployment.url.removesuffix("/v1")) else "not answering"

    def undeploy(self, job: Job) -> str:
        end_process(job.deployment)
        return remove_merged(job.deployment)


def _is_healthy(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        answer = httpx.get(f"{url}/health", timeout=ANSWER_TIMEOUT, trust_env=False)
        return answer.status_code == 200
    return False


def _name_at(url: str, key: str) -> str | None:
    """Return the model that is served there."""
    shown = {"Authorization": f"Bearer {key}"}
    try:
        answer = httpx.get(
            f"{url}/v1/models", headers=shown, timeout=ANSWER_TIMEOUT, trust_env=False
        )
        return answer.json()["data"][0]["id"]
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
        return None


def _is_taken(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
