"""The server that agent programs talk to: OpenAI's and Anthropic's protocols and MCP, answered by
the policy and the env.
"""
