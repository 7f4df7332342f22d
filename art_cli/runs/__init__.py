"""What a run writes and how it is read again: its directory, checkpoints and trajectories."""
