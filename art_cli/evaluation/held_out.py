"""Validation during training, on scenarios that are never trained on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from art_cli.errors import JudgeError
from art_cli.keys import mask_keys
from art_cli.llms.judges.base import Judge, Transcript
from art_cli.llms.judges.scorer import stored_transcript, transcript
from art_cli.reward import set_reward
from art_cli.system.progress import Report, silent
from art_cli.training.gather import gather_trajectory_groups, scenarios_of
from art_cli.training.metrics import ci95, reward_metrics
from art_cli.training.model import TrainableModel
from art_cli.types import Split, Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of a validation. Means are over episodes with a reward."""

    split: Split
    step: int
    episodes: int
    failed: int
    reward: float
    ci: float  # half the width of the reward's 95% confidence interval
    metrics: dict[str, float]  # the env's own metrics (such as success), turns and tokens
    groups: list[TrajectoryGroup]

    def log_row(self) -> dict[str, float]:
        """Return the values for a line of metrics.jsonl."""
        row = {"training_step": self.step, "val/reward": self.reward, "val/reward_ci": self.ci}
        return row | {f"val/{k}": v for k, v in self.metrics.items()}

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from art_cli.view.episode_html import of_evaluation

        numbers = {"reward": f"{self.reward:.3f} ± {self.ci:.3f}"}
        numbers |= {name: f"{value:.3f}" for name, value in sorted(self.metrics.items())}
        numbers |= {"episodes": str(self.episodes), "failed": str(self.failed)}
        trajectories = [t for group in self.groups for t in group.trajectories]
        return of_evaluation(self.split, self.step, numbers, trajectories)


class _AgainstUntrained:
    """Sets missing rewards by comparison with the untrained policy: win 1, tie 0.5, loss 0."""

    def __init__(self, model: TrainableModel, judge: Judge) -> None:
        self._model = model
        self._judge = judge
        self._rows: dict[str, dict[str, Any]] | None = None  # untrained, by scenario id

    async def __call__(self, group: TrajectoryGroup) -> None:
        [now] = group.trajectories
        if now.reward is not None:
            return
        before = self._before(now)
        parts = now.reward_parts
        if before is None:  # this is the untrained policy
            parts.win = 0.5
        else:
            try:
                verdict = await self._judge.judge([before, transcript(now)])
            except JudgeError as e:
                now.error = f"the judge failed: {e}"
                return
            then, score = verdict.scores
            parts.win = 0.5 if score.score == then.score else float(score.score > then.score)
            parts.explanation = score.explanation
        set_reward(now, None)

    def _before(self, now: Trajectory) -> Transcript | None:
        """Return the untrained policy's episode of the scenario, or None at step 0 or if lost."""
        run, split = self._model.parts.run, now.scenario.split
        if self._model.step == 0 or not run.trajectory_file(0, split).exists():
            return None
        if self._rows is None:
            self._rows = {r["scenario_id"]: r for r in run.read_trajectories(0, split)}
        row = self._rows.get(mask_keys(now.scenario.id))
        return stored_transcript(row, now.tools) if row else None


async def evaluate(
    model: TrainableModel,
    *,
    split: Split = "val",
    episodes: int = 64,
    report: Report = silent,
) -> Evaluation:
    """Play one episode of each of the first `episodes` scenarios of a split.

    If the env has no score of its own, the reward is the share of episodes that a judge prefers to
    the untrained policy's episode of the same scenario. Judged scores are not comparable across
    groups, but wins are. Raises EngineError, EnvError, JudgeError, BudgetError.
    """
    scenarios = scenarios_of(model, split)[:episodes]
    against = _AgainstUntrained(model, model.parts.scorer.judge) if model.parts.scorer else None
    groups = await gather_trajectory_groups(
        model, scenarios, group_size=1, purpose="eval", after_each=against, report=report
    )
    trajectories = [t for g in groups for t in g.trajectories]
    rewards = [t.reward for t in trajectories if t.reward is not None]
    if not rewards:
        raise JudgeError(f"the judge failed at all {len(groups)} pairs: {trajectories[0].error}")
    metrics = {k.removeprefix("val/"): v for k, v in reward_metrics("val", trajectories).items()}
    metrics.pop("reward")
    return Evaluation(
        split=split,
        step=model.step,
        episodes=len(trajectories),
        failed=len(trajectories) - len(rewards),
        reward=statistics.fmean(rewards),
        ci=ci95(rewards),
        metrics=metrics,
        groups=groups,
    )
