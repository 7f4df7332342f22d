"""The mathematics of the update: tensors in, tensors out. No files, no config.

To add a loss, write its term and a row of `LOSSES` in `loss.py`; CONTRIBUTING.md has the steps.
"""
