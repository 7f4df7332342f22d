"""Trajectories become a better policy.

`gather.py` rolls out and scores, `batches.py` says when, `algorithm/` is the mathematics,
`trainers/` take the step, `model.py` holds policy, engine and trainer together.
"""
