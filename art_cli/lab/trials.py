"""The runs of a comparison, one for each candidate and seed."""

from __future__ import annotations

from collections.abc import Sequence

from art_cli.errors import UsageError
from art_cli.lab.candidates import Contender
from art_cli.lab.curves import Curve, read_curve
from art_cli.lab.fleet import Fleet
from art_cli.system.progress import Report


def train_with_seed(
    fleet: Fleet, candidates: Sequence[Contender], seed: int, report: Report
) -> dict[str, Curve]:
    """Run all candidates with a seed, unless they are complete, and return their curves.

    Raise UsageError with a run's output if it fails, Interrupted if one is stopped.
    """

    def curve(candidate: Contender) -> Curve:
        name = f"{candidate.letter}-{seed}"
        run = fleet.run_dir(name)
        if not fleet.is_done(name):
            report(f"seed {seed}: training {candidate.letter} (art logs {run.root})")
        ended = fleet.train(name, [*candidate.words, f"seed={seed}"])
        if ended.code:
            raise UsageError(
                f"{candidate.letter} ({candidate.label}) failed with seed {seed}, exit code "
                f"{ended.code}. It said:\n{ended.said}\n"
                "The runs that are done stay; the same command goes on."
            )
        return read_curve(run)

    curves = fleet.side_by_side(curve, candidates)
    return {c.letter: found for c, found in zip(candidates, curves, strict=True)}
