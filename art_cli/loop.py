"""The training loop of an experiment, top to bottom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial

from art_cli.errors import BudgetError, JudgeError
from art_cli.evaluation.held_out import Evaluation, evaluate
from art_cli.runs.checkpoint import best_checkpoint, prune, read_progress
from art_cli.runs.trackers.base import Tracker
from art_cli.system.progress import Report, silent
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.batches import Batch, Batches
from art_cli.training.curriculum.build import make_sampler
from art_cli.training.gather import rollouts, scenarios_of, score_groups
from art_cli.training.metrics import batch_metrics
from art_cli.training.model import Stop, TrainableModel
from art_cli.types import Scenario, TrajectoryGroup

STOP_SECONDS = 0.2  # between checks for a request to stop


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of a run."""

    finished: bool  # False: stopped before the last step
    step: int
    baseline: Evaluation | None = None  # of the untrained policy, if evaluated in this process
    final: Evaluation | None = None
    best_step: int | None = None


async def run_loop(
    model: TrainableModel, tracker: Tracker, stop: Stop, report: Report = silent
) -> Outcome:
    """Roll out, score and update until the last step.

    Raises EngineError, EnvError, TrainerError; earlier checkpoints stay valid. Raises JudgeError
    and BudgetError after saving all finished steps.
    """
    cfg = model.experiment
    outcome = Outcome(finished=False, step=model.step)
    sampler = make_sampler(cfg.train.curriculum, scenarios_of(model, "train"), cfg.seed)
    model.parts.run.write_status("running", model.step, cfg.train.steps)
    if model.step == 0:
        outcome.baseline = await _evaluate_if_due(model, tracker, stop, report)
        outcome.final = outcome.baseline
        if not cfg.train.steps and not stop.requested:  # save the result of SFT
            model.save()
    elif _lacks_evaluation(model) and not stop.requested:
        outcome.final = await _evaluate_if_due(model, tracker, stop, report)
        _checkpoint(model, force=True)
    batches = Batches(model, sampler, partial(_roll_out, model, report))
    try:
        while model.step < cfg.train.steps and not stop.requested:
            try:
                await _step(model, batches, tracker, report)
                evaluation = await _evaluate_if_due(model, tracker, stop, report)
                outcome.final = evaluation or outcome.final
            except (BudgetError, JudgeError):  # earlier steps have been paid for
                if model.step:
                    model.save()
                raise
            _checkpoint(model, force=model.step == cfg.train.steps or stop.requested)
            model.parts.run.write_status("running", model.step, cfg.train.steps)
    finally:
        await batches.close()
    outcome.step = model.step
    outcome.finished = model.step >= cfg.train.steps and not _lacks_evaluation(model)
    outcome.best_step = best_checkpoint(model.parts.run)
    return outcome


def _roll_out(
    model: TrainableModel, report: Report, scenarios: list[Scenario], moment: str
) -> Awaitable[tuple[list[TrajectoryGroup], float]]:
    """Play a group of each scenario, and score each group while others still play.

    Return the groups, and the time at which the last was complete.
    """
    size = model.experiment.train.group_size
    groups = rollouts(model, scenarios, group_size=size, moment=moment, report=report)
    return score_groups(groups, model.parts.scorer, report)


async def _step(model: TrainableModel, batches: Batches, tracker: Tracker, report: Report) -> None:
    """Train on one batch.

    `_roll_out` plays and scores batches. With `train.max_staleness`, it is that many batches ahead
    of the updates.
    """
    began, cpu = time.monotonic(), time.process_time()
    batch = await batches.next()  # rollout -> score
    scored = time.monotonic()
    metrics = _numbers_of(model, batch)
    set_advantages(batch.groups, model.experiment.train.advantage)
    report("updating")
    metrics |= await model.update(batch.groups)
    report("handing the weights to the engine")
    metrics |= await model.sync()
    metrics |= batches.settle(batch)
    rolled = min(max(batch.rolled, began), scored)  # it may have been complete before
    metrics["training_step"] = model.step
    metrics["time/rollout_s"] = rolled - began
    if model.parts.scorer:
        metrics["time/score_s"] = scored - rolled
    metrics["time/step_s"] = time.monotonic() - began
    metrics["time/cpu_s"] = time.process_time() - cpu
    run = model.parts.run  # in a thread, so that rollouts of later batches continue
    await asyncio.to_thread(run.write_trajectories, model.step, "train", batch.groups)
    tracker.log(metrics)


def _numbers_of(model: TrainableModel, batch: Batch) -> dict[str, float]:
    """Return metrics of a batch: `train/*`, `data/*`, `judge/*` and costs.

    Raises JudgeError if the judge failed to score any group.
    """
    parts = model.parts
    judged = parts.scorer.take_metrics() if parts.scorer else {}
    metrics = batch_metrics(batch.groups, model.step) | judged
    metrics |= parts.services.take_metrics() | parts.models.take_metrics()
    seconds = max(batch.rolled - batch.began, 1e-9)
    metrics["throughput/rollout_tok_s"] = metrics["data/tokens_sampled"] / seconds
    return metrics


def _lacks_evaluation(model: TrainableModel) -> bool:
    """Return whether an evaluation of this step is due and not finished.

    A run that is asked to stop leaves its evaluation to `--resume`.
    """
    cfg, step = model.experiment.eval, model.step
    if cfg is None or model.parts.progress.val_reward is not None:
        return False
    return step % cfg.every == 0 or step == model.experiment.train.steps


async def _evaluate_if_due(
    model: TrainableModel, tracker: Tracker, stop: Stop, report: Report
) -> Evaluation | None:
    """Evaluate if an evaluation is due.

    If the run is asked to stop meanwhile, save the step and cancel the evaluation.
    """
    if not _lacks_evaluation(model) or stop.requested:
        return None
    evaluating = asyncio.ensure_future(_evaluate(model, tracker, report))
    try:
        while not evaluating.done() and not stop.requested:
            await asyncio.wait([evaluating], timeout=STOP_SECONDS)
        if stop.requested and not evaluating.done() and model.step:
            model.save()
            report(f"step {model.step} is saved; ending its evaluation, which --resume repeats")
    finally:
        if not evaluating.done():
            evaluating.cancel()
            await asyncio.wait([evaluating])
    return None if evaluating.cancelled() else evaluating.result()


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
    """Save if a checkpoint is due, or if the evaluation is the best so far."""
    cfg, run = model.experiment.checkpoint, model.parts.run
    reward, best = model.parts.progress.val_reward, best_checkpoint(run)
    so_far = None if best is None else read_progress(run.checkpoint(best)).val_reward
    is_best = reward is not None and (so_far is None or reward > so_far)
    if force or is_best or model.step % cfg.every == 0:
        model.save()
        prune(run, cfg.keep)
