"""SkyPilot tasks of a run, as the documents that a task's YAML would hold.

On the nodes:

    ~/.art/dist/         the wheel of the art version that shipped the run
    ~/.art/configs/      its config, resolved
    ~/.art/venv/         the environment that both are used in
    ~/sky_workdir/       the user's own code (SkyPilot's name for it)
    ~/runs/              run directories, on the first node
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from secrets import token_urlsafe as new_token
from typing import Any

from art_cli.config.load import LoadedExperiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.backend import BackendConfig
from art_cli.config.yaml import dump
from art_cli.engines.base import TOKEN
from art_cli.llms.judges.build import KEYS, key_of
from art_cli.llms.services import models_of_env
from art_cli.runs.trackers.build import extras_of, keys_of

RUNS = "runs"  # relative to the home of the first node
STORAGE = "/art-storage"  # mount point of a bucket
TOKEN_BYTES = 32  # of the token for requests between the nodes of a run
ENV_REFERENCE = re.compile(r"\$\{oc\.(?:env|decode):[^}]*?([A-Za-z_][A-Za-z0-9_]*)")
SETUP = """set -e
export PATH="$HOME/.local/bin:$PATH"
exec 9>~/.art/lock && flock 9  # nodes may share a home
command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh
# A machine that was taken away may have left half of it on a disk that the next one finds.
~/.art/venv/bin/python -c 'import sys, torch, transformers, art_cli.cli.main
sys.exit(sys.prefix == sys.base_prefix)' 2>/dev/null || {{
    rm -rf ~/.art/venv
    uv venv --quiet --python '>=3.11,<3.14' ~/.art/venv
}}
wanted="$(sha256sum ~/.art/dist/{wheel}) {extras}"
if [ "$(cat ~/.art/venv/installed 2>/dev/null)" != "$wanted" ]; then
    echo "installing art ..."
    uv pip install --quiet --python ~/.art/venv/bin/python --reinstall-package art-cli \\
        "art-cli{extras} @ file://$HOME/.art/dist/{wheel}"
    echo "$wanted" >~/.art/venv/installed
fi
. ~/.art/venv/bin/activate
"""


def cluster_of(cfg: Experiment) -> str:
    """Return the name of the experiment's cluster, by default derived from the project."""
    return cfg.backend.cluster or re.sub(r"[^a-z0-9-]+", "-", f"art-{cfg.project}".lower())


def job_name(cfg: Experiment) -> str:
    """Return the name of a run's SkyPilot job."""
    return re.sub(r"[^a-zA-Z0-9-]+", "-", f"art-{cfg.project}-{cfg.name}")


def is_managed(backend: BackendConfig) -> bool:
    """Return whether a run is a managed job, whose own machines may be preempted."""
    return backend.storage is not None


def extras(cfg: Experiment) -> str:
    """Return the extras of art to install, in pip's syntax."""
    wanted = ["vllm"] * (cfg.engine.use == "vllm" and cfg.engine.url is None)
    needs_bitsandbytes = cfg.model.quantize or cfg.train.optimizer == "adamw_8bit"
    wanted += ["quantize"] * bool(needs_bitsandbytes)
    wanted += sorted({extra for _, _, extra in extras_of(cfg.track)})
    return f"[{','.join(wanted)}]" if wanted else ""


def shipped_config(loaded: LoadedExperiment) -> str:
    """Return the config for the cluster: without the backend, because it runs locally there."""
    return dump({k: v for k, v in loaded.document.items() if k != "backend"})


def secret_names(loaded: LoadedExperiment) -> list[str]:
    """Return the environment variables that the run reads according to its config."""

    def names() -> Iterator[str]:
        cfg = loaded.experiment
        yield from cfg.backend.secrets
        yield from cfg.agent.pass_env
        yield from (
            name for text in _texts(loaded.document) for name in ENV_REFERENCE.findall(text)
        )
        llms = [cfg.judge] if cfg.judge else []
        for llm in (*llms, *models_of_env(cfg.env, loaded.env_settings).values()):
            providers = [model.partition("/")[0] for model in llm.fallbacks]
            yield from filter(None, (key_of(llm), *map(KEYS.get, providers)))
        yield from keys_of(cfg.track)
        yield "HF_TOKEN"

    return sorted({*names()} - {*loaded.experiment.backend.envs})


def cluster_task(loaded: LoadedExperiment, folder: Path, wheel: str) -> dict[str, Any]:
    """Return the task that sets up a cluster. `folder` holds the files written by `pack`."""
    cfg, backend = loaded.experiment, loaded.experiment.backend
    setup = SETUP.format(wheel=wheel, extras=extras(cfg))
    task: dict[str, Any] = {
        "name": "art-setup",
        "num_nodes": backend.num_nodes,
        "resources": backend.resources,
        "envs": dict(backend.envs),
        "file_mounts": {"~/.art/dist": str(folder / "dist")},
        "setup": setup + (backend.setup or ""),
    }
    return task | ({"workdir": backend.workdir} if backend.workdir else {})


def run_task(
    loaded: LoadedExperiment,
    folder: Path,
    wheel: str,
    secrets: dict[str, str],
    going_on: list[str],
) -> dict[str, Any]:
    """Return the task of the run itself. `going_on` is as in `send`."""
    cfg, backend = loaded.experiment, loaded.experiment.backend
    run = f"{cfg.project}/{cfg.name}"
    task = cluster_task(loaded, folder, wheel)
    task["name"] = job_name(cfg)
    task["secrets"] = secrets
    task["file_mounts"]["~/.art/configs/" + run] = str(folder / "config")
    options = ["--run", run, "--processes", str(cfg.train.num_processes)]
    if cfg.engine.nodes:
        options += ["--engine-nodes", str(cfg.engine.nodes)]
        task["secrets"] = secrets | {TOKEN: new_token(TOKEN_BYTES)}
    options += going_on or ["--resume"] * is_managed(backend)
    if backend.storage is not None:
        options += ["--storage", storage_folder(backend.storage)]
    if isinstance(backend.storage, dict):
        task["file_mounts"][STORAGE] = backend.storage
    config = f"~/.art/configs/{run}/config.yaml"
    node = f"python -m art_cli.backends.cloud.node {config} --runs-dir ~/{RUNS}"
    task["run"] = f". ~/.art/venv/bin/activate\nexec {node} {shlex.join(options)}\n"
    return task


def storage_folder(storage: str | dict[str, Any]) -> str:
    """Return the path of the storage on the nodes."""
    return storage if isinstance(storage, str) else STORAGE


def place_of(message: str, origins: dict[str, str]) -> str:
    """Return the place in the config of the backend key that SkyPilot's message quotes.

    If no key is quoted, return that of the section, or "" if it is all by default. `origins` are
    those of the loaded config.
    """
    written = {p: o for p, o in origins.items() if p.startswith("backend.") and o != "default"}
    for path, origin in written.items():
        words = path.split(".")[2:]
        if any(f"'{word}'" in message for word in words):
            return f"{origin}: {path}: "
    return next((f"{origin}: backend: " for origin in written.values()), "")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
