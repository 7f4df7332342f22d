"""vLLM servers that several tests share: one for each shape of a model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.vllm import server as vllm_server
from art_cli.engines.vllm.engine import VLLMEngine
from art_cli.models.policy import Policy
from art_cli.system.child_server import ChildServer

EXTRA = {"enforce_eager": True}  # nothing is compiled: a start takes half the time
MAX_LEN = 1024


class Servers:
    """Starts what is asked for once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[Any, tuple[ChildServer, Path]] = {}

    def engine(
        self, policy: Policy, base: Policy, stop_ids: frozenset[int], settings: dict[str, Any]
    ) -> VLLMEngine:
        """An engine with the policy's weights, at a server for its kind of `base`."""
        server, folder = self._of(policy, base)
        policy.base.name_or_path = str(folder)
        known = EngineConfig.__slots__
        engine = {k: v for k, v in settings.items() if k in known and k != "deterministic"}
        sampling = {k: v for k, v in settings.items() if k not in known}
        cfg = EngineConfig(use="vllm", url=server.url, **{"max_model_len": MAX_LEN, **engine})

        async def start() -> VLLMEngine:
            how = SamplingConfig(**sampling)
            made = await VLLMEngine.start(policy, cfg, how, stop_ids, logs=self._folder)
            await made.sync(0)
            return made

        return asyncio.run(start())

    def _of(self, policy: Policy, base: Policy) -> tuple[ChildServer, Path]:
        kind = f"{type(policy.base).__name__}-{'adapter' if policy.has_adapter else 'all'}"
        if kind not in self._running:
            folder = self._folder / kind
            folder.mkdir()
            base.save(folder)
            policy.base.name_or_path = str(folder)
            cfg = EngineConfig(use="vllm", max_model_len=MAX_LEN, extra=EXTRA)
            log, options = folder / "engine.log", vllm_server.options_of(policy, cfg)
            self._running[kind] = asyncio.run(vllm_server.start(options, [0], log)), folder
        return self._running[kind]

    def close(self) -> None:
        """End them."""
        for server, _ in self._running.values():
            asyncio.run(server.close())
