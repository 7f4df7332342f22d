"""Targets of a deployment: one file or folder each.

To add one: its settings in `config/targets.py`, its place in `deploy/build.py`; CONTRIBUTING.md has
the steps.
"""
