#!/usr/bin/env bash
# Claude Code: its own tools, and the env's over MCP.
set -euo pipefail
request=$(jq -r '[.messages[].content] | join("\n\n")' "$ART_SCENARIO_FILE")
servers=$(jq -n '{mcpServers: {env: {type: "http", url: env.ART_MCP_URL}}}')
claude --print --strict-mcp-config --mcp-config "$servers" \
    --allowedTools mcp__env --disallowedTools mcp__env__reply -- "$request"
