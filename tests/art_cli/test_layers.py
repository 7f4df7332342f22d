"""The rooms of art_cli, bottom first: a room imports only from those above it in this list."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import art_cli

ROOT = Path(art_cli.__file__).parent
ROOMS = (
    *("keys", "terminal", "errors", "types", "system", "config", "reward", "envs", "chat"),
    *("models", "runs", "engines", "llms", "rollout", "training", "backends", "evaluation", "loop"),
    *("preflight", "deploy", "scenarios", "why", "view", "inspection", "lab", "cli", "__main__"),
)
INNER = re.compile(r"\s*(from|import) art_cli\.")
STRANGERS = {("models", "envs"), ("preflight", "backends")}
HOMES = {  # a heavy dependency is imported in one file, or in one room
    "wandb": "runs/trackers/wandb/tracker.py",
    "opentelemetry": "runs/trackers/otlp",
    "mlflow": "runs/trackers/mlflow.py",
    "trackio": "runs/trackers/trackio.py",
    "litellm": "llms/remote.py",
    "sky": "backends/cloud/skypilot.py",
    "peft": "models",
    "llguidance": "chat/grammar",
    "plotly": "view/frame.py",
    "plotext": "inspection/plot.py",
    "optuna": "lab/study.py",
    "art_envs": None,  # the program knows no task
    "vllm": None,  # it is a process of its own, which loads engines/vllm/worker.py
}


def files() -> list[Path]:
    """Return the files of art_cli, but for the packages' own and what `art init` copies."""
    found = (p.relative_to(ROOT) for p in ROOT.rglob("*.py"))
    return [p for p in found if p.name != "__init__.py" and "template" not in p.parts]


def imported(path: Path) -> Iterator[str]:
    """Return the full names of all that a file imports when it is used.

    What only type checkers import is left out, and what only a notebook that shows an object does.
    """

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.FunctionDef) and node.name == "_repr_html_":
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return visit(ast.parse((ROOT / path).read_text()))


IMPORTED = {path: set(imported(path)) for path in files()}


def arrows() -> dict[str, dict[str, set[str]]]:
    """Return who imports whom among the members of each folder, by the folder's name."""
    known = {p.with_suffix("").parts for p in IMPORTED}
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, names in IMPORTED.items():
        one = path.with_suffix("").parts
        for name in names:
            other = tuple(name.split(".")[1:])
            while other and other not in known:
                other = other[:-1]
            if not name.startswith("art_cli.") or other == one:
                continue
            depth = next(i for i, part in enumerate(one) if part != (*other, "")[i])
            found["/".join(one[:depth])][one[depth]].add((*other, "itself")[depth])
    return found


def test_every_room_is_in_the_list() -> None:
    assert {p.with_suffix("").parts[0] for p in IMPORTED} == set(ROOMS)


def test_a_room_imports_only_from_those_above_it() -> None:
    wrong = [
        f"{one} imports {other}"
        for one, others in arrows()[""].items()
        for other in others
        if ROOMS.index(other) >= ROOMS.index(one) or {(one, other), (other, one)} & STRANGERS
    ]
    assert sorted(wrong) == []


def test_there_is_no_circle_inside_a_room() -> None:
    for members in arrows().values():
        TopologicalSorter(members).prepare()  # raises CycleError, which names the circle


def test_a_heavy_dependency_is_imported_in_its_home() -> None:
    for dependency, home in HOMES.items():
        users = {
            p.as_posix()
            for p, names in IMPORTED.items()
            if dependency in {n.split(".")[0] for n in names}
        }
        outside = {u for u in users if home is None or not f"{u}/".startswith(f"{home}/")}
        assert not outside and bool(users) == (home is not None), dependency


def test_what_users_copy_imports_from_art_cli_alone() -> None:
    """Envs that come along, what `art init` makes, and the docs are what users begin with."""
    home = ROOT.parent
    shown = [*(home / "envs").rglob("*.py"), *(ROOT / "cli" / "template").rglob("*.py")]
    texts = [path.read_text() for path in shown]
    texts += [page.read_text() for page in (home / "README.md", *(home / "docs").glob("*.md"))]
    assert len(texts) > 40
    inner = [line for text in texts for line in text.splitlines() if INNER.match(line)]
    assert inner == []


@pytest.mark.parametrize(
    ("test", "file", "name"),
    [
        (test_a_room_imports_only_from_those_above_it, "config/load.py", "art_cli.loop.train"),
        (test_a_room_imports_only_from_those_above_it, "models/policy.py", "art_cli.envs.base.Env"),
        (test_there_is_no_circle_inside_a_room, "runs/directory.py", "art_cli.runs.checkpoint"),
        (test_there_is_no_circle_inside_a_room, "training/model.py", "art_cli.training.gather"),
        (test_a_heavy_dependency_is_imported_in_its_home, "rollout/episode.py", "wandb"),
        (test_a_heavy_dependency_is_imported_in_its_home, "engines/build.py", "vllm.LLM"),
    ],
)
def test_a_wrong_import_of_each_kind_is_found(
    monkeypatch: pytest.MonkeyPatch, test: Callable[[], None], file: str, name: str
) -> None:
    test()
    monkeypatch.setitem(IMPORTED, Path(file), IMPORTED[Path(file)] | {name})
    with pytest.raises((AssertionError, CycleError)):
        test()
