"""A server on this machine that speaks OpenAI's protocol: vLLM, or the embedded engine.

It is a process of its own, which outlives `art deploy --no-wait` and ends with `art undeploy`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import httpx

from art_cli.config.targets import ServeConfig
from art_cli.deploy.base import Deployment, Plan, Source
from art_cli.deploy.merged import WEIGHTS, make_merged, merged_words, remove_merged
from art_cli.errors import ArtError, PreflightError
from art_cli.report import Report

START_TIMEOUT = 600.0  # seconds: vLLM compiles
STOP_TIMEOUT = 15.0  # between asking to end and killing
ANSWER_TIMEOUT = 5.0
PAUSE = 0.2
SHOWN = 2000  # characters of what a server that failed has said


class ServeTarget:
    """Implements Target."""

    def __init__(self, settings: ServeConfig) -> None:
        self._port = settings.port
        self._engine = settings.engine
        self._url = f"http://127.0.0.1:{settings.port}"

    def plan(self, source: Source, name: str) -> Plan:
        """See Target."""
        engine = self._which()
        if _name_at(self._url) != name and _is_taken(self._port):
            raise PreflightError(f"port {self._port} is in use; choose another: port=8001")
        return Plan(
            source=source,
            name=name,
            lines=[("what", merged_words(source)), ("on", engine), ("at", f"{self._url}/v1")],
            serves=True,
            stays=True,
            details=engine,
        )

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

    def deploy(
        self,
        plan: Plan,
        deployment: Deployment,
        keep: Callable[[], None],
        report: Report,
        *,
        wait: bool,
    ) -> None:
        """See Target. It answers when this returns, `wait` or not."""
        made, source = deployment.made, plan.source
        home = source.run.deployment("serve", plan.name)
        folder, log = home / WEIGHTS, home / "server.log"
        self._end_process(deployment)
        make_merged(source, folder, deployment, report)
        with log.open("wb") as printed:
            process = subprocess.Popen(
                self._command(plan, folder),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        made["pid"], made["port"] = process.pid, self._port
        keep()
        self._until_answered(process, plan.name, log, report)
        process.returncode = 0  # it outlives us, of which Popen would warn
        deployment.url, deployment.model = f"{self._url}/v1", plan.name
        deployment.state = "ready"

    def _command(self, plan: Plan, folder: Path) -> list[str]:
        cfg = plan.source.experiment
        room = str(cfg.engine.max_model_len)
        if plan.details != "vLLM":
            words = [str(folder), plan.name, str(self._port), room, str(cfg.sampling.max_tokens)]
            return [sys.executable, "-m", "art_cli.deploy.chat_server", *words]
        return [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
            *("--served-model-name", plan.name, "--host", "127.0.0.1", "--port", str(self._port)),
            *("--max-model-len", room, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ]

    def _until_answered(
        self, process: subprocess.Popen[bytes], name: str, log: Path, report: Report
    ) -> None:
        began = time.monotonic()
        while _name_at(self._url) != name:
            waited = time.monotonic() - began
            if process.poll() is not None or waited > START_TIMEOUT:
                said = log.read_text(errors="replace")[-SHOWN:]
                how = "ended" if process.poll() is not None else f"said nothing in {waited:.0f} s"
                raise ArtError(f"the server {how}; {log} ends with:\n{said}")
            report(f"starting the server, {waited:.0f} s")
            time.sleep(PAUSE)

    def state(self, deployment: Deployment) -> str:
        """See Target."""
        port = deployment.made.get("port")
        here = port and _name_at(f"http://127.0.0.1:{port}") == deployment.name
        return "ready" if here else "stopped"

    def undeploy(self, deployment: Deployment, keep: Callable[[], None], report: Report) -> str:
        """See Target."""
        self._end_process(deployment)
        return remove_merged(deployment)

    def _end_process(self, deployment: Deployment) -> None:
        """End the server's process, if it is one of ours that has this number."""
        pid = deployment.made.pop("pid", None)
        if pid is None or not _is_ours(pid, deployment.name):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            _kill(pid, number)
            deadline = time.monotonic() + STOP_TIMEOUT
            while time.monotonic() < deadline:
                if not _is_ours(pid, deployment.name):
                    return
                time.sleep(PAUSE)


def _name_at(url: str) -> str | None:
    """The model that is served there."""
    try:
        answer = httpx.get(f"{url}/v1/models", timeout=ANSWER_TIMEOUT, trust_env=False)
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


def _is_ours(pid: int, name: str) -> bool:
    """Numbers of processes are given again."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True
    ).stdout
    return f" {name} " in f"{listed.strip()} " and not listed.lstrip().startswith("Z")


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
