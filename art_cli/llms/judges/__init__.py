"""Judges, which score the trajectories of a group.

`ruler.py` is RULER, `base.py` has the `Judge` interface, and `scorer.py` sets rewards from scores.
"""
