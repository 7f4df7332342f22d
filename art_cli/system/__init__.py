"""Files, locks, deadlines, child processes and the terminal: what is not of our field."""
