"""OpenAI's responses: items in the place of messages, and a memory of what was answered."""
