"""How much GPU memory a run takes, by arithmetic, and what would make it fit."""
