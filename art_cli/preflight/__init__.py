"""Checks before a run costs anything: memory, packages, services, envs."""
