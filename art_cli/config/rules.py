"""Settings that are fine on their own but not together: without effect, or impossible."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, get_args, get_type_hints

from art_cli.config.agent_rules import AGENT_RULES
from art_cli.config.explain import Mistake
from art_cli.config.interpolate import Resolved
from art_cli.config.marks import NotWith, OnlyWith
from art_cli.config.opponent_rules import OPPONENT_RULES
from art_cli.config.problem import KeyPath
from art_cli.config.rule import Rule, clash, is_positive, is_set
from art_cli.config.schema import REFERENCE, Experiment

MAX_LORA_RANK = 512  # of vLLM
OWN_OPTIONS = {  # of `vllm serve`, that follow from other keys
    *("model", "served_model_name", "host", "port", "dtype", "enable_lora", "max_lora_rank"),
    *("max_model_len", "max_num_seqs", "tensor_parallel_size", "gpu_memory_utilization"),
    *("logprobs_mode", "enable_sleep_mode", "generation_config", "enable_scale_out"),
}


def _spot(resources: dict[str, Any]) -> bool:
    choices = [resources, *(resources.get("any_of") or []), *(resources.get("ordered") or [])]
    return any(isinstance(choice, dict) and choice.get("use_spot") is True for choice in choices)


def _managed(resources: dict[str, Any]) -> bool:
    return _spot(resources) or "job_recovery" in resources


def _marked(cls: type, section: str = "") -> Iterator[Rule]:
    """Yield a rule for each mark at a field of the schema."""
    hints = get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        path, hint = section + each.name, hints[each.name]
        made = each.default_factory is not MISSING
        default = each.default_factory() if made else each.default  # type: ignore[misc]
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OnlyWith | NotWith):
                yield Rule(path, (mark.key,), partial(_is_unused, default, mark), mark.message)
        for part in (hint, *get_args(hint)):
            if isinstance(part, type) and is_dataclass(part):
                yield from _marked(part, f"{path}.")


def _is_unused(default: Any, mark: OnlyWith | NotWith, value: Any, other: Any) -> bool:
    return value != default and other not in mark.values


RULES = (
    *_marked(Experiment),
    *AGENT_RULES,
    *OPPONENT_RULES,
    clash(
        {"model.quantize": is_set, "model.adapter": None},
        "keeps the base as it is, but model.adapter is null: there is nothing to train; "
        "train an adapter, or remove it",
    ),
    clash(
        {"model.quantize": is_set, "model.base": "tiny"},
        "has no effect with model.base=tiny; remove it",
    ),
    clash(
        {"train.router_aux_coef": is_positive, "model.base": "tiny"},
        "has no effect with model.base=tiny, which has no router; remove it",
    ),
    clash(
        {"model.quantize": is_set, "model.device": "cpu"},
        "needs a GPU, but model.device is cpu; remove one of them",
    ),
    clash(
        {"model.quantize": is_set, "warmup.weights": "all"},
        "keeps the base as it is, but warmup.weights is all; write adapter",
    ),
    clash(
        {"model.quantize": is_set, "engine.use": "vllm", "engine.sync": "adapter".__ne__},
        "leaves nothing that an adapter can be merged into; add engine.sync: adapter",
    ),
    *(
        Rule(
            key,
            ("train.num_processes",),
            lambda value, num, default=default: value != default and num > 1,
            "{0} works in one process only, and train.num_processes is {1}; remove one of them",
        )
        for key, default in (("model.quantize", None), ("train.optimizer", "adamw"))
    ),
    clash(
        {"train.optimizer": "adamw_8bit", "model.device": "cpu"},
        "is adamw_8bit, which needs a GPU, but model.device is cpu; remove one of them",
    ),
    clash(
        {"train.clip_low": is_set, "train.loss": "cispo"},
        "has no effect with train.loss=cispo, which clips from above only; remove it",
    ),
    Rule(
        "engine.max_model_len",
        ("sampling.max_tokens",),
        lambda length, turn: length <= turn,
        "must be more than sampling.max_tokens ({1}), got {0}",
    ),
    Rule(
        "engine.gpus",
        ("engine.replicas", "engine.tensor_parallel"),
        lambda gpus, replicas, parallel: gpus is not None and len(set(gpus)) != replicas * parallel,
        "must name as many GPUs as engine.replicas ({1}) times engine.tensor_parallel ({2}), "
        "each once, got {0}",
    ),
    Rule(
        "engine.gpus",
        ("engine.replicas", "engine.tensor_parallel", "engine.nodes"),
        lambda gpus, replicas, parallel, nodes: (
            gpus is None and nodes == 0 and replicas * parallel > 1
        ),
        "is missing: {1} replicas of {2} GPUs need GPUs of their own, e.g. [1, 2]",
    ),
    clash(
        {"engine.gpus": is_set, "engine.nodes": is_positive},
        "has no effect with engine.nodes={1}, whose GPUs are all vLLM's; remove it",
    ),
    Rule(
        "engine.replicas",
        ("engine.nodes",),
        lambda replicas, nodes: nodes > 0 and replicas % nodes != 0,
        "is {0}, but engine.nodes is {1}: each takes the same number of replicas; write a multiple "
        "of {1}",
    ),
    Rule(
        "engine.nodes",
        ("backend.num_nodes", "backend.use"),
        # What a cluster gets has no section `backend`: there, this is not asked.
        lambda serving, nodes, use: use == "skypilot" and nodes <= serving,
        "is {0}, but backend.num_nodes is {1}: at least one must be left to train; write a larger "
        "backend.num_nodes",
    ),
    Rule(
        "engine.extra",
        (),
        lambda extra: bool(OWN_OPTIONS & {key.replace("-", "_") for key in extra}),
        "holds an option that this program sets itself ({0}); use the keys of engine",
    ),
    clash(
        {"engine.sync": "adapter", "model.adapter": None},
        "is adapter, but model.adapter is null: all weights are trained, and sent; remove it",
    ),
    Rule(
        "train.minibatches",
        ("train.scenarios_per_step",),
        lambda parts, scenarios: parts > scenarios,
        "is {0}, but train.scenarios_per_step is {1}: each update takes the episodes of at least "
        "one scenario; write at most {1}",
    ),
    clash(
        {"train.max_staleness": is_positive, "train.refill": True},
        "does not go with train.refill, which says only after a batch where the next one begins; "
        "remove one of them",
    ),
    clash(
        {
            "train.max_staleness": is_positive,
            "engine.use": "transformers",
            "engine.deterministic": True,
        },
        "lets rollouts run into updates, so nothing repeats exactly; add engine.deterministic: "
        "false",
    ),
    Rule(
        "model.adapter.rank",
        ("engine.use",),
        lambda rank, use: use == "vllm" and rank > MAX_LORA_RANK,
        f"must be at most {MAX_LORA_RANK} with engine.use=vllm, got {{0}}",
    ),
    clash(
        {"warmup.weights": "adapter", "model.adapter": None},
        "is adapter, but model.adapter is null; remove it, or write all",
    ),
    Rule(
        "warmup.weights",
        ("model.base", "model.adapter"),
        lambda weights, base, adapter: base == "tiny" and adapter is not None and weights != "all",
        "must be all with model.base=tiny: what a random model lacks cannot be learnt through an "
        "adapter; add `weights: all`",
    ),
    clash(
        {"judge.rubric_file": is_set, "judge.rubric": is_set},
        "stands beside judge.rubric; keep one of them",
    ),
    clash(
        {"judge.command": is_set, "judge.api_base": is_set},
        "starts a server of its own, so judge.api_base has no effect; remove one of them",
    ),
    *(
        clash(
            {f"judge.{key}": bool, "judge.model": REFERENCE},
            "has no effect with judge.model=reference, which asks nobody; remove it",
        )
        for key in (
            "fallbacks",
            "command",
            "api_base",
            "api_key_env",
            "params",
            "prices",
            "max_usd",
            "max_input_tokens",
        )
    ),
    clash(
        {"judge.model": REFERENCE, "model.adapter": None},
        "is reference, the base with its adapter off, but model.adapter is null; name another "
        "model, or train an adapter",
    ),
    clash(
        {"reward.ruler": is_positive, "judge": None},
        "needs a judge; add for example: judge: {{model: openai/o3}}",
    ),
    clash(
        {"reward.ruler": 0, "judge": is_set},
        "is 0, so the judge has no effect; remove the section judge, or give it a weight",
    ),
    clash(
        {"reward.env": 0, "reward.ruler": 0, "reward.agent": 0},
        "is 0, as reward.ruler and reward.agent are: there is nothing to learn from; for the env's "
        "own score write reward.env: 1.0",
    ),
    clash(
        {"reward.gate": is_set, "reward.ruler": 0},
        "has no effect with reward.ruler=0; remove it",
    ),
    Rule(
        "reward.max_invalid_cost",
        ("reward.invalid_action_cost",),
        lambda most, cost: most != 0.5 and cost == 0,
        "has no effect with reward.invalid_action_cost=0; remove it",
    ),
    Rule(
        "reward.env",
        ("reward.invalid_action_cost", "reward.ruler", "reward.agent"),
        lambda env, cost, ruler, agent: cost > 0 and env not in (0, 1) and ruler == agent == 0,
        "is {0}, but the env's score counts once where there is no judge and no agent's reward; "
        "write 1",
    ),
    Rule(
        "backend.num_nodes",
        ("train.num_processes", "engine.nodes"),
        lambda nodes, processes, serving: serving == 0 and processes % nodes != 0,
        "is {0}, but train.num_processes is {1}: each node takes the same number of processes; "
        "write a multiple of {0}",
    ),
    Rule(
        "backend.num_nodes",
        ("engine.nodes", "train.num_processes"),
        lambda nodes, serving, processes: (
            0 < serving < nodes and processes % (nodes - serving) != 0
        ),
        "is {0}, and all but {1} (engine.nodes) train, but train.num_processes is {2}: each node "
        "that trains takes the same number of processes; write a multiple of their number",
    ),
    Rule(
        "backend.storage",
        ("backend.resources",),
        lambda storage, resources: storage is None and _spot(resources),
        "is missing: a machine that may be taken away (use_spot) needs a place where its run "
        "stays, e.g. storage: {{name: my-bucket}}",
    ),
    Rule(
        "backend.storage",
        ("backend.resources", "backend.use"),
        lambda storage, resources, use: (
            storage is not None and use == "skypilot" and not _managed(resources)
        ),
        "has no effect without backend.resources.use_spot or job_recovery: a cluster's run is "
        "brought back from the cluster; remove it",
    ),
    Rule(
        "backend.cluster",
        ("backend.storage",),
        lambda cluster, storage: cluster is not None and storage is not None,
        "has no effect with backend.storage: a managed job has machines of its own; remove it",
    ),
)


def broken_rules(resolved: Resolved, wrong: Set[KeyPath]) -> Iterator[Mistake]:
    """Yield what the rules refuse, skipping rules that need an absent or already `wrong` value."""
    written = resolved.as_written(resolved.data)
    for rule in RULES:
        paths = [tuple(path.split(".")) for path in (rule.path, *rule.others)]
        if any(path[: len(bad)] == bad for path in paths for bad in wrong):
            continue
        try:
            values = [_at(resolved.data, path) for path in paths]
        except (KeyError, TypeError):  # in a section that is absent or null
            continue
        if rule.broken(*values):
            message = rule.message.format(*(_at(written, path) for path in paths))
            yield Mistake(paths[0], "key", message, tuple(paths[1:]))


def _at(data: Any, path: KeyPath) -> Any:
    for key in path:
        data = data[key]
    return data
