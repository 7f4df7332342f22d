"""Trackers of metrics: metrics.jsonl, the console, and those of the section `track`."""
