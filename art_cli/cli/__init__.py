"""The commands: one file each, wiring only. `main.py` has the table of them."""
