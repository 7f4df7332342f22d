"""The experiment, top to bottom."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from art_cli.advantage import has_gradient
from art_cli.checkpoint import best_checkpoint, prune, read_progress
from art_cli.env import seed_of
from art_cli.errors import BudgetError, JudgeError
from art_cli.evaluation.progress import Evaluation, evaluate
from art_cli.gather import gather_trajectory_groups, scenarios_of
from art_cli.metrics import batch_metrics
from art_cli.model import Stop, TrainableModel
from art_cli.report import Report, silent
from art_cli.trackers.base import Tracker
from art_cli.types import Scenario, TrajectoryGroup

MAX_REFILLS = 3  # rounds of further scenarios in one step


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    finished: bool  # False: stopped before the last step
    step: int
    baseline: Evaluation | None = None  # of the untrained policy, if evaluated in this process
    final: Evaluation | None = None
    best_step: int | None = None


@dataclass(slots=True)
class Stream:
    """All train scenarios in a new random order each epoch; a number says where one is in it."""

    scenarios: list[Scenario]
    seed: int
    _order: tuple[int, list[Scenario]] = field(default=(-1, []))

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """The next `num` scenarios from `cursor` on."""
        return [self._at(i) for i in range(cursor, cursor + num)]

    def _at(self, i: int) -> Scenario:
        epoch, place = divmod(i, len(self.scenarios))
        if self._order[0] != epoch:
            rng = random.Random(seed_of(self.seed, "epoch", epoch))
            self._order = (epoch, rng.sample(self.scenarios, len(self.scenarios)))
        return self._order[1][place]


async def run_loop(
    model: TrainableModel, tracker: Tracker, stop: Stop, report: Report = silent
) -> Outcome:
    """Rollout, score, update, until the last step.

    Raises EngineError, EnvError, TrainerError; what was saved before stays good. Raises JudgeError
    and BudgetError, with all finished steps saved.
    """
    cfg = model.experiment
    outcome = Outcome(finished=False, step=model.step)
    stream = Stream(scenarios_of(model, "train"), cfg.seed)
    model.parts.run.write_status("running", model.step, cfg.train.steps)
    if cfg.eval and model.step == 0:
        outcome.baseline = outcome.final = await _evaluate(model, tracker, report)
    while model.step < cfg.train.steps and not stop.requested:
        before = model.parts.progress
        try:
            await _step(model, stream, tracker, report)
            last = model.step == cfg.train.steps
            if cfg.eval and (model.step % cfg.eval.every == 0 or last):
                outcome.final = await _evaluate(model, tracker, report)
        except (BudgetError, JudgeError):  # what was learned before has been paid for
            if model.step == before.step:  # the step was begun, but not taken
                model.parts.progress = before
            if model.step:
                model.save()
            raise
        _checkpoint(model, force=last or stop.requested)
        model.parts.run.write_status("running", model.step, cfg.train.steps)
    outcome.step = model.step
    outcome.finished = model.step >= cfg.train.steps
    outcome.best_step = best_checkpoint(model.parts.run)
    return outcome


async def _step(model: TrainableModel, stream: Stream, tracker: Tracker, report: Report) -> None:
    """One rollout batch and what is learned from it."""
    began = time.monotonic()
    clock = _RolloutClock(report)
    groups, judged = await _rollouts(model, stream, clock)
    rolled, scored = clock.rolled, time.monotonic()
    metrics = batch_metrics(groups) | judged | model.parts.services.take_metrics()
    metrics |= await model.train(groups)
    metrics["training_step"] = model.step
    metrics["time/rollout_s"] = rolled - began
    if model.parts.scorer:
        metrics["time/score_s"] = scored - rolled
    metrics["time/step_s"] = time.monotonic() - began
    metrics["throughput/rollout_tok_s"] = metrics["data/tokens_sampled"] / (rolled - began)
    model.parts.run.write_trajectories(model.step, "train", groups)
    tracker.log(metrics)


class _RolloutClock:
    """A Report that notes when the last rollout ended; what comes after it is scoring."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.rolled = 0.0

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        if text == "rollout":
            self.rolled = time.monotonic()
        self._report(text, done, total)


async def _rollouts(
    model: TrainableModel, stream: Stream, report: Report
) -> tuple[list[TrajectoryGroup], dict[str, float]]:
    """The scored groups of one step, and what scoring took.

    With `refill`, further groups for those without a gradient.
    """
    cfg, scorer = model.experiment.train, model.parts.scorer
    groups: list[TrajectoryGroup] = []
    missing = cfg.scenarios_per_step
    for _ in range(1 + (MAX_REFILLS if cfg.refill else 0)):
        cursor = model.parts.progress.cursor
        scenarios = stream.take(cursor, missing)
        model.note(cursor=cursor + missing)
        groups += await gather_trajectory_groups(
            model, scenarios, group_size=cfg.group_size, after_each=scorer, report=report
        )
        missing = cfg.scenarios_per_step - sum(has_gradient(g.rewards) for g in groups)
        if missing <= 0:
            break
    return groups, scorer.take_metrics() if scorer else {}


async def _evaluate(model: TrainableModel, tracker: Tracker, report: Report) -> Evaluation:
    cfg = model.experiment.eval
    assert cfg is not None
    began = time.monotonic()
    what = "evaluating" if model.step else "evaluating the untrained policy"

    def tell(text: str, done: int | None = None, total: int | None = None) -> None:
        report(what, done, total)

    result = await evaluate(model, split=cfg.split, episodes=cfg.episodes, report=tell)
    model.note(val_reward=result.reward)
    model.parts.run.write_trajectories(model.step, result.split, result.groups)
    tracker.log(result.log_row() | {"time/eval_s": time.monotonic() - began})
    return result


def _checkpoint(model: TrainableModel, force: bool) -> None:
    """Save where it is due, and whenever an evaluation was the best so far."""
    cfg, run = model.experiment.checkpoint, model.parts.run
    reward, best = model.parts.progress.val_reward, best_checkpoint(run)
    so_far = None if best is None else read_progress(run.checkpoint(best)).val_reward
    is_best = reward is not None and (so_far is None or reward > so_far)
    if force or is_best or model.step % cfg.every == 0:
        model.save()
        prune(run, cfg.keep)
