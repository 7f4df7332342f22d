"""How an episode looks in HTML: one style for the pages and for notebooks."""
