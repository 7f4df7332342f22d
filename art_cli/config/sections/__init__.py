"""The sections of a config: one file each, with rules about their combination with others.

The text under each key appears in docs/config.md, `art config explain` and the JSON Schema.
"""
