"""Conversations and tokens: chat templates, formats of tool calls, grammars."""
