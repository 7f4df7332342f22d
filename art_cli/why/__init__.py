"""The diagnosis of a run: findings from its records, the most serious first."""
