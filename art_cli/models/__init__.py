"""Weights and tokens: what is trained, its attention, and how messages become tokens."""
