"""Weights & Biases and Weave trackers, which never block or fail a run."""
