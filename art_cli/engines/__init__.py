"""Engines, which sample token ids with log-probabilities.

`base.py` has the interface. `embedded/` runs in this process, `vllm/` in servers that are started
with the run.
"""
