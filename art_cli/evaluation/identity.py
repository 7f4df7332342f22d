"""The identity of a candidate: everything that determines how it plays.

A candidate is evaluated again if its identity changes; otherwise known results are reused. The
env's code counts, with all that it imports from its own package or folder. art's own code does not;
instead, VERSION is raised when a change of the turn loop affects episodes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from art_cli.config.schema import Experiment
from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Env
from art_cli.envs.digest import code_digest, files_digest
from art_cli.errors import CheckpointError
from art_cli.llms.remote import identity_of
from art_cli.runs.directory import RunDir
from art_cli.runs.opponents import saved_opponent
from art_cli.system.files import open_file

VERSION = 1
LARGEST_FILE = 1_000_000  # bytes; larger files of a program are not code
WEIGHTS = ("*.safetensors", "config.json", "adapter_config.json", "chat_template.jinja")


def task_identity(env_class: type[Env], settings: Any) -> Any:
    """Return the identity of the env with its settings and code, as JSON.

    A model that it calls counts by everything that determines its answers.
    """
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    known = {
        name: identity_of(value) if isinstance(value, LLMConfig) else _plain(value)
        for name, value in values.items()
    }
    return [VERSION, env_class.__qualname__, known, code_digest(env_class)]


def policy_identity(cfg: Experiment, run: RunDir | None, source: str, step: int | None) -> Any:
    """Return the identity of a policy and its sampling.

    Without a run, this is how the policy is created, which determines it as well.
    """
    how = asdict(cfg)
    played = [how["seed"], how["sampling"], how["agent"], agent_digest(cfg.agent)]
    made = [how["model"], cfg.engine.max_model_len, *played]
    if source == "base":
        return ["base", made]
    if run is None:
        return ["start", made, how["sft"], cfg.train.microbatch_tokens]
    folders = [run.base, run.checkpoint(step or 0)]
    return ["weights", made, [folder_digest(f) if f.exists() else None for f in folders]]


def opponent_identity(cfg: Experiment, run: RunDir | None) -> list[Any]:
    """Return the identity of the opponent in a game, or [] for the env's script.

    Raises UsageError and CheckpointError for a checkpoint that is missing or incomplete.
    """
    who = cfg.env.opponents.eval if cfg.env.opponents else "script"
    if who == "script":
        return []
    if who == "start":
        return [policy_identity(cfg, run, "start", None)]
    if isinstance(who, LLMConfig):
        return [identity_of(who)]
    saved = saved_opponent("env.opponents.eval", who, run)
    return [["checkpoint", saved.weights, asdict(cfg.sampling)]]


def weights_identity(cfg: Experiment) -> list[Any]:
    """Return the combination of held-out rewards, or [] if they are the env's score."""
    reward, found = cfg.reward, []
    if reward and reward.invalid_action_cost:
        found.append(["price", reward.invalid_action_cost, reward.max_invalid_cost])
    if reward and reward.agent and not reward.judge:
        found.append(["weights", reward.env, reward.agent])
    return found


def llm_identity(llm: LLMConfig, agent: AgentConfig) -> Any:
    """Return the identity of a model behind an API, with its agent if that is not built in."""
    if agent.use == "builtin":
        return identity_of(llm)
    return [identity_of(llm), asdict(agent), agent_digest(agent)]


def key_of(identity: Any) -> str:
    """Return the hash of an identity, for a file name."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def folder_digest(folder: Path) -> str:
    """Return a digest of the weights in a folder. Raises CheckpointError for a damaged one."""
    total = hashlib.sha256()
    try:
        for file in sorted(p for pattern in WEIGHTS for p in folder.glob(pattern)):
            with open_file(file) as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            total.update(f"{file.name} {digest}".encode())
    except OSError as e:
        raise CheckpointError(f"{folder} is damaged: {e}. Take another checkpoint") from None
    return total.hexdigest()[:16]


def agent_digest(agent: AgentConfig) -> str | None:
    """Return a digest of a program, function or class that plays: its files, and those beside them
    that end alike. Others may be a log that grows, or notes."""
    code = agent.use if ":" in agent.use else agent.function or ""  # FILE.py:NAME, or none
    words = [*(agent.command or ()), code.rpartition(":")[0]]
    if agent.command and Path(agent.command[0]).is_absolute():
        words.pop(0)  # an interpreter such as /usr/bin/node
    named = [Path(word) for word in words if word and os.path.isfile(word)]
    if code and not named:
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(code.partition(":")[0])
            named = [Path(spec.origin)] if spec and spec.origin else []
    files = {*named}
    for file in named:
        files |= {f for f in file.parent.iterdir() if f.suffix == file.suffix != "" and f.is_file()}
    small = (f for f in files if f.stat().st_size < LARGEST_FILE)
    return files_digest(small) if named else None


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
