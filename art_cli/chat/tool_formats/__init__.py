"""Formats of tool calls: `table.py` has an entry for each, the others read them."""
