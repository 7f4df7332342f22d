"""What a program talks to: OpenAI's protocol and MCP, answered by the policy and the env."""
