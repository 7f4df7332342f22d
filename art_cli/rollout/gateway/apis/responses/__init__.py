"""OpenAI's responses API, whose requests are items and may refer to stored responses."""
