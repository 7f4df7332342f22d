"""Targets of a deployment: one file or folder each.

To add a target, put its settings into `config/targets.py` and its module into `deploy/build.py`;
CONTRIBUTING.md has the steps.
"""
