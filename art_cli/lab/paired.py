"""Intervals of paired differences that stay valid if they are looked at after every seed.

A usual 95% interval holds for one look, not for whoever stops at the first that excludes 0. The
chance that the true difference is *ever* outside is at most the stated error: the interval of all
differences against which the Bayes factor of a t-test, effect size ~ N(0, 1) under the alternative
(Goenen et al. 2005), has not reached 1 / error. Such a factor is a martingale under its null
hypothesis whatever the variance (Lai 1976; 2310.03722), so Ville's inequality bounds its maximum.
It is exact for differences that are normal.
"""

from __future__ import annotations

import math
import statistics

from art_cli.evaluation.statistics import Estimate


def interval(differences: list[float], error: float) -> Estimate:
    """Return the mean of paired differences and an interval that is valid at each look.

    The interval has no bounds if there are too few differences or all are equal, because the noise
    cannot be estimated then.
    """
    n = len(differences)
    mean = math.fsum(differences) / n
    nowhere = Estimate(mean, -math.inf, math.inf)
    spread = statistics.stdev(differences) if n > 1 else 0.0
    if spread == 0:
        return nowhere
    g = 1.0 + n
    # (1 + x) / (1 + x / g) = r, with x = t^2 / (n - 1): the t at which the factor is 1 / error.
    r = (math.sqrt(g) / error) ** (2 / n)
    if r >= g:
        return nowhere
    t = math.sqrt((n - 1) * (r - 1) / (1 - r / g))
    half = t * spread / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half)
