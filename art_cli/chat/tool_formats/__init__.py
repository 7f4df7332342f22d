"""Formats of tool calls. `table.py` has an entry for each; the other modules read them."""
