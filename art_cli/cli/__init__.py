"""The commands: one file each, without logic of their own. `main.py` lists them."""
