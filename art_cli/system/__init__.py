"""Files, locks, deadlines, child processes: system code independent of machine learning."""
