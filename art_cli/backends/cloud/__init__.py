"""Runs on rented machines. Only `skypilot.py` imports sky."""
