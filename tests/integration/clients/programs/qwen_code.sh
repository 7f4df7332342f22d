#!/usr/bin/env bash
# Qwen Code: its own tools, and the env's over MCP.
set -euo pipefail
request=$(jq -r '[.messages[].content] | join("\n\n")' "$ART_SCENARIO_FILE")
mkdir -p ~/.qwen
jq -n '{
    security: {auth: {selectedType: "openai"}},
    mcpServers: {env: {httpUrl: env.ART_MCP_URL, trust: true, excludeTools: ["reply"]}}
}' >~/.qwen/settings.json
OPENAI_MODEL=policy qwen --approval-mode yolo --prompt "$request"
