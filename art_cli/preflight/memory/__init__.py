"""The GPU memory of a run, by arithmetic, and the settings that would make it fit."""
