"""Agents: the policy itself, a model behind an API, a program, or a function."""
