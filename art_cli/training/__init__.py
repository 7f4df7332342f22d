"""Training: from trajectories to a better policy.

`gather.py` rolls out and scores, `batches.py` schedules the rollouts, `algorithm/` has the
mathematics, `trainers/` apply the updates, and `model.py` joins policy, engine and trainer.
"""
