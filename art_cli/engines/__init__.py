"""Engines: token ids in, token ids and their log-probabilities out.

`base.py` has the Protocol; `embedded/` runs in this process, `vllm/` in servers that are started
with the run.
"""
