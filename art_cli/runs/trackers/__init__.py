"""Where metrics go: metrics.jsonl, the console, and what `track` names."""
