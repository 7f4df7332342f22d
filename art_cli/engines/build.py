"""Construction of the engine from the section `engine`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from art_cli.config.schema import Experiment
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Engine
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.engines.user_engine import UserEngine
from art_cli.engines.vllm.engine import VLLMEngine
from art_cli.engines.vllm.machines import check_nodes
from art_cli.engines.vllm.server import check_vllm
from art_cli.models.policy import Policy
from art_cli.system.progress import silent


def check_engine(cfg: Experiment) -> None:
    """Raise PreflightError if the engine cannot run. Called before a model is loaded.

    Waits for the serving nodes.
    """
    if cfg.engine.nodes:
        check_nodes(cfg.engine)
    elif cfg.engine.use == "vllm":
        check_vllm(cfg.engine, cfg.train)


async def make_engine(
    policy: Policy,
    cfg: EngineConfig,
    sampling: SamplingConfig,
    stop_ids: frozenset[int],
    *,
    logs: Path,
    apart: bool = False,
    say: Callable[[str], None] = silent,
) -> Engine:
    """Start the engine. With `apart`, it continues sampling while the policy is updated.

    Raises PreflightError, UsageError.
    """
    if cfg.use == "vllm":
        return await VLLMEngine.start(policy, cfg, sampling, stop_ids, logs=logs, say=say)
    if cfg.use != "transformers":
        return UserEngine(policy, cfg, sampling, stop_ids)
    if apart:
        return TransformersEngine(policy.twin(), cfg, sampling, stop_ids, source=policy)
    return TransformersEngine(policy, cfg, sampling, stop_ids)
