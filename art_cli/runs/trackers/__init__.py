"""Trackers of metrics: metrics.jsonl, the console, and those that `track` names."""
