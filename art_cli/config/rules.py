"""Settings that are fine on their own but not together: without effect, or impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from operator import not_
from typing import Any, get_args, get_type_hints

from art_cli.config.explain import Mistake
from art_cli.config.interpolate import Resolved
from art_cli.config.marks import NotWith, OnlyWith
from art_cli.config.schema import REFERENCE, Experiment
from art_cli.config.yaml import KeyPath


@dataclass(frozen=True, slots=True)
class Rule:
    """Refuse `path` where `broken` holds for its value and those of `others`."""

    path: str
    others: tuple[str, ...]
    broken: Callable[..., bool]
    message: str  # formatted with the same values


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


def _clash(unwanted: dict[str, Any], message: str) -> Rule:
    """Return a rule against these values together; a function says whether a value is unwanted."""

    def broken(*values: Any) -> bool:
        pairs = zip(unwanted.values(), values, strict=True)
        return all(bad(value) if callable(bad) else value == bad for bad, value in pairs)

    path, *others = unwanted
    return Rule(path, tuple(others), broken, message)


def _is_set(value: Any) -> bool:
    return value is not None


def _is_wildcard(address: str) -> bool:
    return address.rpartition(":")[0] in ("0.0.0.0", "[::]", "*")


def _is_positive(value: float) -> bool:
    return value > 0


RULES = (
    *_marked(Experiment),
    _clash(
        {"agent.type": "program", "agent.command": not_},
        "is program, but agent.command is missing, e.g. [node, agent.js]",
    ),
    _clash(
        {"agent.type": "function", "agent.use": not_},
        "is function, but agent.use is missing, e.g. agent.py:play",
    ),
    _clash(
        {"agent.type": "service", "agent.url": not_},
        "is service, but agent.url is missing, e.g. http://127.0.0.1:8900/episodes",
    ),
    _clash(
        {"agent.bind": _is_wildcard, "agent.public_url": None},
        "is all addresses of this machine, but agent.public_url is missing: the service must be "
        "told one of them, e.g. http://10.0.0.5:8901",
    ),
    Rule(
        "reward.agent",
        ("agent.type",),
        lambda weight, kind: weight > 0 and kind != "service",
        "is {0}, but an agent of agent.type={1} gives no reward; remove it",
    ),
    _clash(
        {"agent.sandbox": "docker", "agent.image": not_},
        "is docker, but agent.image is missing, e.g. node:22",
    ),
    _clash(
        {"model.quantize": _is_set, "model.adapter": None},
        "keeps the base as it is, but model.adapter is null: there is nothing to train; "
        "train an adapter, or remove it",
    ),
    _clash(
        {"model.quantize": _is_set, "model.base": "tiny"},
        "has no effect with model.base=tiny; remove it",
    ),
    _clash(
        {"train.router_aux_coef": _is_positive, "model.base": "tiny"},
        "has no effect with model.base=tiny, which has no router; remove it",
    ),
    _clash(
        {"model.quantize": _is_set, "model.device": "cpu"},
        "needs a GPU, but model.device is cpu; remove one of them",
    ),
    _clash(
        {"model.quantize": _is_set, "warmup.weights": "all"},
        "keeps the base as it is, but warmup.weights is all; write adapter",
    ),
    _clash(
        {"model.quantize": _is_set, "engine.use": "vllm", "engine.sync": "adapter".__ne__},
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
    _clash(
        {"train.optimizer": "adamw_8bit", "model.device": "cpu"},
        "is adamw_8bit, which needs a GPU, but model.device is cpu; remove one of them",
    ),
    _clash(
        {"train.clip_low": _is_set, "train.loss": "cispo"},
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
    _clash(
        {"engine.gpus": _is_set, "engine.nodes": _is_positive},
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
    _clash(
        {"engine.sync": "adapter", "model.adapter": None},
        "is adapter, but model.adapter is null: all weights are trained, and sent; remove it",
    ),
    _clash(
        {"train.max_staleness": _is_positive, "train.refill": True},
        "does not go with train.refill, which says only after a batch where the next one begins; "
        "remove one of them",
    ),
    _clash(
        {
            "train.max_staleness": _is_positive,
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
    _clash(
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
    _clash(
        {"judge.rubric_file": _is_set, "judge.rubric": _is_set},
        "stands beside judge.rubric; keep one of them",
    ),
    _clash(
        {"judge.command": _is_set, "judge.api_base": _is_set},
        "starts a server of its own, so judge.api_base has no effect; remove one of them",
    ),
    *(
        _clash(
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
    _clash(
        {"judge.model": REFERENCE, "model.adapter": None},
        "is reference, the base with its adapter off, but model.adapter is null; name another "
        "model, or train an adapter",
    ),
    _clash(
        {"reward.ruler": _is_positive, "judge": None},
        "needs a judge; add for example: judge: {{model: openai/o3}}",
    ),
    _clash(
        {"reward.ruler": 0, "judge": _is_set},
        "is 0, so the judge has no effect; remove the section judge, or give it a weight",
    ),
    _clash(
        {"reward.env": 0, "reward.ruler": 0, "reward.agent": 0},
        "and reward.ruler are both 0: there is nothing to learn from",
    ),
    _clash(
        {"reward.gate": _is_set, "reward.ruler": 0},
        "has no effect with reward.ruler=0; remove it",
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
