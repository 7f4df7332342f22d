"""Plugins of verifiers, which imports them as top-level modules: this folder is on sys.path."""
