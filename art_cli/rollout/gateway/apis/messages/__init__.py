"""Anthropic's messages: blocks of text, thinking and tools in the place of strings."""
