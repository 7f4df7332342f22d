"""Weights & Biases and Weave, which never hold a run up and never end it."""
