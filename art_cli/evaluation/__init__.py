"""Evaluation of policies: candidates, attempts, statistics, comparison."""
