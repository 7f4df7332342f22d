"""All printed output: without keys, and without sequences that a terminal obeys."""
