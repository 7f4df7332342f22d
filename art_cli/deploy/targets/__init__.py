"""Where a checkpoint can go: one file or folder a target.

To add one: its settings in `config/targets.py`, its place in `deploy/build.py`; CONTRIBUTING.md has
the steps.
"""
