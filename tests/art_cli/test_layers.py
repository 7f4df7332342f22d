"""The order of the files is the order of the data: a file imports only from those above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import art_cli

ROOT = Path(art_cli.__file__).parent
ROWS = (
    "printed screen errors types files outside recent deadline",
    "config.yaml config.schema config.explain config.interpolate config.credentials config.rules",
    "config.targets",
    "config.load",
    "config.diff",
    "memory memory_advice shape gpus",
    "tools env",
    "lock checksums trajectory_rows registry rundir report checkpoint",
    "guard server attention flex decoder tiny render chat merge policy",
    "engines.base engines.kv_cache engines.sampler engines.rows engines.transformers",
    "engines.sync_choice engines.vllm_worker",
    "engines.vllm_server engines.host engines.places engines.vllm engines.make",
    "llms.base llms.meter llms.answer llms.own llms.prices llms.remote llms.reference",
    "llms.stand_in llms.services",
    "judges.base judges.answer judges.prompt judges.cache judges.ruler judges.make judges.audit",
    "trackers.base trackers.jsonl trackers.console",
    "trackers.courier trackers.samples trackers.wandb_files trackers.wandb_server trackers.weave",
    "trackers.wandb",
    "episode agents.base agents.policy",
    "gateway.request gateway.body gateway.answer gateway.hosted gateway.mcp gateway.server",
    "agents.sandbox agents.hosted agents.program agents.function agents.make agents.prompted",
    "rollout rollouts",
    "advantage logprobs loss metrics pack score ruler evaluation.statistics",
    "trainers.budget trainers.base trainers.schedule trainers.stats trainers.forward",
    "trainers.optimizers trainers.grpo trainers.sft",
    "trainers.launch trainers.messages trainers.sharded trainers.ranks trainers.make",
    "demonstrations preflight fit smoke",
    "envcheck.finding envcheck.watch envcheck.players envcheck.play envcheck.subject",
    "envcheck.instances envcheck.state envcheck.other envcheck.episodes envcheck.rewards",
    "envcheck.check",
    "doctor.machine doctor.services doctor.check",
    "canary model gather ahead evaluation.progress",
    "backends.local loop rejudge",
    "backends.wheel backends.snapshots backends.node backends.task backends.plan",
    "backends.listening backends.skypilot backends.fetch backends.stored backends.remote",
    "evaluation.attempts evaluation.candidates evaluation.identity evaluation.play",
    "evaluation.judged evaluation.comparison evaluation.page_template evaluation.page",
    "evaluation.session evaluation.policies",
    "deploy.base deploy.store deploy.template deploy.merged",
    "deploy.together_api deploy.catalogue deploy.upload deploy.once deploy.together",
    "deploy.card deploy.hub deploy.skyserve deploy.go_template deploy.ollama",
    "deploy.access deploy.asgi deploy.chat_server deploy.serve deploy.make deploy.deploying",
    "deploy.verify",
    "cli.inputs cli.tables cli.standing cli.smoke cli.remote cli.cluster cli.run cli.eval",
    "cli.judge cli.validate cli.doctor cli.envs cli.init cli.runs cli.deploy",
    "cli.main __main__",
)
ORDER = [name for row in ROWS for name in row.split()]
HEAVY = {
    "wandb": "trackers.wandb",
    "litellm": "llms.remote",
    "sky": "backends.skypilot",
    "vllm": "engines.vllm",
}


def modules() -> dict[str, Path]:
    """All files but the packages' own and what `art init` copies."""
    files = [p.relative_to(ROOT) for p in ROOT.rglob("*.py")]
    kept = [f for f in files if f.name != "__init__.py" and "template" not in f.parts]
    return {".".join(f.with_suffix("").parts): ROOT / f for f in kept}


def imported(path: Path) -> Iterator[str]:
    """Full names of all that a file imports, in functions too, but not for type checkers only."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return visit(ast.parse(path.read_text()))


def own(name: str) -> str | None:
    """The file of art_cli that a full name is in, or None for a name of someone else."""
    if name.split(".")[0] != "art_cli":
        return None
    known, name = modules(), name.removeprefix("art_cli").removeprefix(".")
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or "(the package itself)"


def test_every_file_has_its_place() -> None:
    assert sorted(ORDER) == sorted(modules())


def test_a_file_imports_only_from_those_above_it() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        for other in {own(full) for full in imported(path)} - {None}
        if other not in ORDER[: ORDER.index(name)]
    ]
    assert sorted(wrong) == []


def test_the_program_knows_no_task() -> None:
    users = [n for n, p in modules().items() if any(f.startswith("art_envs") for f in imported(p))]
    assert users == []


def test_a_heavy_dependency_is_imported_in_one_file() -> None:
    for dependency, home in HEAVY.items():
        users = [
            n for n, p in modules().items() if dependency in (f.split(".")[0] for f in imported(p))
        ]
        assert users in ([], [home])
