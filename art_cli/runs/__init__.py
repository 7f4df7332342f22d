"""The files of a run: its directory, checkpoints and trajectories, written and read."""
