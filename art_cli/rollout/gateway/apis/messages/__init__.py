"""Anthropic's messages API, whose content is blocks of text, thinking and tools."""
