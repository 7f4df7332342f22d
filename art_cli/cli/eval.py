"""`art eval`: how good is a run, against its untrained policy."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from art_cli.cli import inputs
from art_cli.cli.inputs import progress

if TYPE_CHECKING:
    from art_cli.evaluation.progress import Evaluation


def evaluate_command(
    target: Annotated[list[str], typer.Argument(help="A run directory, or a config file.")],
    checkpoint: Annotated[
        str, typer.Option(help="best, last, or the step of a checkpoint.")
    ] = "best",
    split: Annotated[str, typer.Option(help="val or test.")] = "val",
    episodes: Annotated[int, typer.Option(min=1, help="How many scenarios.")] = 128,
    runs_dir: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Evaluate a run on held-out scenarios, or the policy that a config starts from.

    Example:  art eval runs/default/quickstart --checkpoint best --episodes 256
    """
    if split not in ("val", "test"):
        raise typer.BadParameter("expected val or test", param_hint="--split")
    results = asyncio.run(_evaluate(target, checkpoint, split, episodes, runs_dir))  # type: ignore[arg-type]
    from art_cli.cli.tables import comparison, evaluation_row

    if as_json:
        return print(json.dumps({name: evaluation_row(e) for name, e in results}))
    return comparison(*results)


async def _evaluate(
    target: list[str],
    checkpoint: str,
    split: Literal["val", "test"],
    episodes: int,
    runs_dir: Path,
) -> list[tuple[str, Evaluation]]:
    from art_cli.backends.local import LocalBackend
    from art_cli.checkpoint import find_checkpoint
    from art_cli.cli.tables import evaluation_row
    from art_cli.errors import UsageError
    from art_cli.evaluation.progress import evaluate
    from art_cli.model import TrainableModel
    from art_cli.rundir import RunDir, atomic_write

    run = RunDir(Path(target[0]).resolve())
    is_run = run.config.is_file()
    loaded = inputs.load([str(run.config)] if is_run else target)
    cfg = loaded.experiment
    root = run.root.parent.parent if is_run else runs_dir
    model = TrainableModel.of(cfg, loaded.env_settings, loaded.to_yaml())
    named = RunDir(root / cfg.project / cfg.name)
    if is_run and named.root != run.root:
        raise UsageError(
            f"{run.root} was moved: its config says {cfg.project}/{cfg.name}. Move it back to "
            f"RUNS/{cfg.project}/{cfg.name}"
        )
    run = named
    if not run.config.is_file():
        return [("untrained", await _untrained(model, split, episodes))]
    step = find_checkpoint(run, checkpoint)
    async with LocalBackend(root, report=progress) as backend:
        await model.open(backend)
        before = await evaluate(model, split=split, episodes=episodes, report=progress)
        await model.go_to(step)
        after = await evaluate(model, split=split, episodes=episodes, report=progress)
    results = [("untrained", before), (checkpoint, after)]
    rows = {name: evaluation_row(e) for name, e in results}
    atomic_write(run.evaluation(split, step), json.dumps(rows, indent=2) + "\n")
    return results


async def _untrained(model: Any, split: Literal["val", "test"], episodes: int) -> Evaluation:
    """There is no run yet: prepare one, warm-up included, in a folder that is thrown away."""
    from art_cli.backends.local import LocalBackend
    from art_cli.evaluation.progress import evaluate

    with tempfile.TemporaryDirectory() as folder:
        async with LocalBackend(folder, report=progress) as backend:
            await model.register(backend)
            return await evaluate(model, split=split, episodes=episodes, report=progress)
