"""The sections of a config: one file each, with the rules that bind it to others beside it.

Under each key stands what docs/config.md, `art config explain` and the JSON Schema say of it.
"""
