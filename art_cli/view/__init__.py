"""The page of runs: what it shows, as a local server that follows them, or as one file."""
