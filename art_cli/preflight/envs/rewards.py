"""Checks of the reward: low for players that do not do the task, full for gold."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from art_cli.envs.base import Env
from art_cli.preflight.check_result import CheckResults, failed, ok, place_of, skipped, warning
from art_cli.preflight.envs.play import NotCalledError, Played
from art_cli.preflight.envs.players import GoldError
from art_cli.preflight.envs.subject import AT_RANDOM, DEMONSTRATED, IDLE_NAMES, Subject

NO_SCORES = "the env has no score of its own (score() is None): a judge decides"
SAME = 1e-6


def check_easy_rewards(s: Subject) -> CheckResults:
    """Check that idle and random players earn little, compared with gold."""
    means = {n: fmean(r) for n, plays in s.plays.items() if (r := _rewards(plays))}
    if not means:
        yield skipped(NO_SCORES)
        return
    seen = [r for plays in s.plays.values() for r in _rewards(plays)]
    gold = means.pop("gold", None)
    means.pop(DEMONSTRATED, None)  # these may be good turns
    best, worst = max(seen), min(*seen, 0.0) if gold is not None else min(seen)
    bound = worst + s.options.low * ((best if gold is None else gold) - worst)
    where, numbers = place_of(s.env_class, "score"), _listed(means)
    if gold is None and best == worst:
        what = f"every episode of {len(s.plays)} players earned {best:g}, so it is unknown whether"
        yield warning(f"{what} anything earns more", where, "write gold(), a perfect player")
        return
    of = f"the {gold:.2f} of gold" if gold is not None else f"the best seen, {best:.2f}"
    for name, mean in means.items():
        if mean <= bound + SAME or name == AT_RANDOM:  # demonstrated turns may be good ones
            continue
        # Without gold, the reward of a good player is unknown.
        found, what = failed if gold is not None else warning, f"{name} earns {mean:.2f}, of {of}"
        todo = "reward what was achieved; --low sets another bound"
        yield found(f"{what} (means); the bound is {bound:.2f}", where, todo)
    yield ok(f"{numbers}; of {of}")


def why_no_rewards(plays: Sequence[Played]) -> str:
    """Return the reason why none of gold's `plays` has a reward."""
    if not any(p.error for p in plays):
        return NO_SCORES
    if any(isinstance(p.error, NotCalledError) for p in plays):
        return "gold() calls tools that may write to the server's own data: --allow-writes"
    return "none of gold's episodes came to its end"


def _rewards(plays: Sequence[Played]) -> list[float]:
    return [p.reward for p in plays if p.reward is not None]


def _listed(means: dict[str, float]) -> str:
    idle = [m for n, m in means.items() if n in IDLE_NAMES]
    parts = [f"idle at most {max(idle):.2f}"] if idle else []
    return ", ".join(parts + [f"{n} {m:.2f}" for n, m in means.items() if n not in IDLE_NAMES])


def check_gold(s: Subject) -> CheckResults:
    """Check that gold reaches the end, and that no player earns more."""
    if not s.golden:
        todo = "write gold(): the turns of a perfect player, to prove that it can be solved"
        has_none = s.env_class.gold is Env.gold
        yield skipped("the env has no gold()" if has_none else "gold() is None", todo)
        return
    yield from findings_on_gold(s, s.plays["gold"], [p for all in s.plays.values() for p in all])


def findings_on_gold(
    s: Subject, plays: Sequence[Played], everyone: Sequence[Played]
) -> CheckResults:
    """Yield problems of gold's `plays`. `everyone` shows the maximum reward."""
    where = place_of(s.env_class, "gold")
    for p in plays:
        if isinstance(p.error, GoldError):
            yield failed(f"{p.error} ({p.trajectory.scenario.id!r})", where)
            return
    if not _rewards(plays):
        yield skipped(why_no_rewards(plays))
        return
    best = max(_rewards(everyone))
    target = best if best > 1 else 1.0
    short = [p for p in plays if p.reward is not None and p.reward < target - SAME]
    for p in short[:1]:
        what = f"gold() earns {p.reward:g} in {p.trajectory.scenario.id!r}, not {target:g}"
        todo = "either the turns are not perfect, or score() is wrong"
        yield failed(f"{what} ({len(short)} of {len(plays)} episodes)", where, todo)
    for p in plays[:2]:
        again = s.play(p.trajectory.scenario, p.repeater)
        if again.reward != p.reward:
            what = f"its turns, repeated by another player, earn {again.reward}, not {p.reward}"
            yield failed(what, where, "gold() must not change the env, nor draw from self.rng")
            break
    yield ok(f"earns {target:g} in all of {len(plays)} episodes")
