"""GPU memory of a run, by arithmetic, and settings that would make it fit."""
