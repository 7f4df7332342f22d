#!/usr/bin/env bash
# Codex: its own tools, and the env's over MCP.
set -euo pipefail
request=$(jq -r '[.messages[].content] | join("\n\n")' "$ART_SCENARIO_FILE")
codex exec --skip-git-repo-check "$@" \
    -c "model_provider='art'" \
    -c "model_providers.art={name='art', base_url='$OPENAI_BASE_URL'}" \
    -c "mcp_servers.env.url='$ART_MCP_URL'" \
    -c "mcp_servers.env.default_tools_approval_mode='approve'" \
    -c "mcp_servers.env.disabled_tools=['reply']" \
    "$request"
