"""A server on this machine that speaks OpenAI's protocol."""
