"""Where metrics go: metrics.jsonl, the console, W&B."""
