"""A run on rented machines: sent, watched, brought back. `skypilot.py` alone imports sky."""
