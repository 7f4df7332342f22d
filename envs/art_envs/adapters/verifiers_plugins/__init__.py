"""Plugins of verifiers, which imports them as modules of the top: this folder is on its path."""
