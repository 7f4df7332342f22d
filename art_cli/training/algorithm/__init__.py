"""The mathematics of the update, as pure functions on tensors.

To add a loss, write its term and a row of `LOSSES` in `loss.py`; CONTRIBUTING.md has the steps.
"""
