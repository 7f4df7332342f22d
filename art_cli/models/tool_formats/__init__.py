"""How models write tool calls: `table.py` has an entry for each format, the others read them."""
