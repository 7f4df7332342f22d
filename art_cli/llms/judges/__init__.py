"""Judges: the trajectories of a group in, a score for each out.

`ruler.py` is RULER; `base.py` has the Protocol, `scorer.py` makes rewards of scores.
"""
