"""Players with frozen weights: the policy of step 0, and checkpoints of other runs."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Literal

from art_cli.chat.render import Renderer
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import SavedPolicyConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import UsageError
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.policy_agent import PolicyAgents
from art_cli.runs.opponents import SavedPolicies, SavedPolicy


class FrozenPlayers:
    """Creates each such player once, on its own engine beside the trainer."""

    def __init__(
        self,
        cfg: Experiment,
        policy: Policy,
        renderer: Renderer,
        saved: SavedPolicies,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        """`policy` is that of step 0. `stack` closes the engines."""
        self._cfg = cfg
        self._policy = policy
        self._renderer = renderer
        self._saved = saved
        self._stack = stack
        self._made: dict[str, AgentFactory] = {}

    def player(self, who: Literal["start"] | SavedPolicyConfig) -> AgentFactory:
        """Return the agents with these weights. Raises UsageError if they cannot be loaded."""
        saved = None if who == "start" else self._saved[who]
        name = str(saved.folder) if saved else "start"
        if name not in self._made:
            policy, renderer = self._load(saved) if saved else (self._policy.twin(), self._renderer)
            cfg = self._cfg
            engine = TransformersEngine(policy, cfg.engine, cfg.sampling, renderer.stop_ids)
            self._stack.push_async_callback(engine.close)
            self._made[name] = PolicyAgents(engine, renderer, cfg.engine.max_model_len)
        return self._made[name]

    def _load(self, saved: SavedPolicy) -> tuple[Policy, Renderer]:
        """Load a checkpoint, with its own tokenizer, template and tool format, on our device."""
        cfg = self._cfg
        model = replace(saved.model, device=cfg.model.device)
        try:
            if model.adapter and self._is_ours(model):  # share the base
                policy = self._policy.twin()
            else:
                policy = load_policy(model, (), cfg.seed)
                if model.adapter:
                    policy.add_adapter(model.adapter, cfg.seed)
            if model.adapter:
                policy.load(saved.folder)
            renderer = Renderer(
                policy.tokenizer,
                self._renderer.tools,
                policy.eos_token_ids,
                model.tool_format,
                model.template_args,
                self._renderer.template.now,
            )
        except UsageError as e:
            raise UsageError(f"{saved.key}: {saved.folder} cannot be loaded: {e}") from e
        return policy, renderer

    def _is_ours(self, model: ModelConfig) -> bool:
        """Return whether the policy has the same base, loaded the same way, and a like adapter."""
        ours = replace(self._cfg.model, base=self._policy.source)
        loaded = ("base", "adapter", "dtype", "quantize")
        return all(getattr(ours, name) == getattr(model, name) for name in loaded)
