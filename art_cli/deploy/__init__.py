"""Deployment of a checkpoint to a target. Repeating a deployment changes nothing.

`base.py` has the types and the Protocol, `lifecycle.py` the steps that all targets share.
"""
