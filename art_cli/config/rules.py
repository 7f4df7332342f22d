"""Settings that are fine on their own but not together: without effect, or impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
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
            if is_dataclass(part):
                yield from _marked(part, f"{path}.")  # type: ignore[arg-type]


def _is_unused(default: Any, mark: OnlyWith | NotWith, value: Any, other: Any) -> bool:
    return value != default and not mark.has_effect(other)


RULES = (
    *_marked(Experiment),
    *(
        Rule(
            "agent.type",
            (f"agent.{key}",),
            lambda type, value, needs=needs: type == needs and not value,
            message,
        )
        for needs, key, message in (
            (
                "program",
                "command",
                "is program, but agent.command is missing, e.g. [node, agent.js]",
            ),
            ("function", "use", "is function, but agent.use is missing, e.g. agent.py:play"),
        )
    ),
    Rule(
        "agent.sandbox",
        ("agent.image",),
        lambda sandbox, image: sandbox == "docker" and not image,
        "is docker, but agent.image is missing, e.g. node:22",
    ),
    *(
        Rule(
            "model.quantize",
            (key,),
            lambda quantize, value, bad=bad: quantize is not None and value == bad,
            message,
        )
        for key, bad, message in (
            (
                "model.adapter",
                None,
                "keeps the base as it is, but model.adapter is null: there is nothing to train; "
                "train an adapter, or remove it",
            ),
            ("model.base", "tiny", "has no effect with model.base=tiny; remove it"),
            ("model.device", "cpu", "needs a GPU, but model.device is cpu; remove one of them"),
            (
                "warmup.weights",
                "all",
                "keeps the base as it is, but warmup.weights is all; write adapter",
            ),
        )
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
    Rule(
        "train.optimizer",
        ("model.device",),
        lambda optimizer, device: optimizer == "adamw_8bit" and device == "cpu",
        "is adamw_8bit, which needs a GPU, but model.device is cpu; remove one of them",
    ),
    Rule(
        "train.clip_low",
        ("train.loss",),
        lambda low, loss: low is not None and loss == "cispo",
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
    Rule(
        "engine.gpus",
        ("engine.nodes",),
        lambda gpus, nodes: gpus is not None and nodes > 0,
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
    Rule(
        "engine.sync",
        ("model.adapter",),
        lambda sync, adapter: sync == "adapter" and adapter is None,
        "is adapter, but model.adapter is null: all weights are trained, and sent; remove it",
    ),
    Rule(
        "train.max_staleness",
        ("train.refill",),
        lambda staleness, refill: staleness > 0 and refill,
        "does not go with train.refill, which says only after a batch where the next one begins; "
        "remove one of them",
    ),
    Rule(
        "train.max_staleness",
        ("engine.use", "engine.deterministic"),
        lambda staleness, use, deterministic: (
            staleness > 0 and use == "transformers" and deterministic
        ),
        "lets rollouts run into updates, so nothing repeats exactly; add engine.deterministic: "
        "false",
    ),
    Rule(
        "model.adapter.rank",
        ("engine.use",),
        lambda rank, use: use == "vllm" and rank > MAX_LORA_RANK,
        f"must be at most {MAX_LORA_RANK} with engine.use=vllm, got {{0}}",
    ),
    Rule(
        "warmup.weights",
        ("model.adapter",),
        lambda weights, adapter: weights == "adapter" and adapter is None,
        "is adapter, but model.adapter is null; remove it, or write all",
    ),
    Rule(
        "warmup.weights",
        ("model.base", "model.adapter"),
        lambda weights, base, adapter: base == "tiny" and adapter is not None and weights != "all",
        "must be all with model.base=tiny: what a random model lacks cannot be learnt through an "
        "adapter; add `weights: all`",
    ),
    Rule(
        "judge.rubric_file",
        ("judge.rubric",),
        lambda file, rubric: file is not None and rubric is not None,
        "stands beside judge.rubric; keep one of them",
    ),
    Rule(
        "judge.command",
        ("judge.api_base",),
        lambda command, base: command is not None and base is not None,
        "starts a server of its own, so judge.api_base has no effect; remove one of them",
    ),
    *(
        Rule(
            f"judge.{key}",
            ("judge.model",),
            lambda value, model: bool(value) and model == REFERENCE,
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
    Rule(
        "judge.model",
        ("model.adapter",),
        lambda model, adapter: model == REFERENCE and adapter is None,
        "is reference, the base with its adapter off, but model.adapter is null; name another "
        "model, or train an adapter",
    ),
    Rule(
        "reward.ruler",
        ("judge",),
        lambda weight, judge: weight > 0 and judge is None,
        "needs a judge; add for example: judge: {{model: openai/o3}}",
    ),
    Rule(
        "reward.ruler",
        ("judge",),
        lambda weight, judge: weight == 0 and judge is not None,
        "is 0, so the judge has no effect; remove the section judge, or give it a weight",
    ),
    Rule(
        "reward.env",
        ("reward.ruler",),
        lambda env, ruler: env == 0 and ruler == 0,
        "and reward.ruler are both 0: there is nothing to learn from",
    ),
    Rule(
        "reward.gate",
        ("reward.ruler",),
        lambda gate, ruler: gate is not None and ruler == 0,
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
    """What the rules refuse. A rule is skipped if a value it needs is absent or `wrong` already."""
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
