"""Where metrics go: one base and one file per place."""
