#!/usr/bin/env bash
# opencode: its own tools, and the env's over MCP. It asks for a title, too.
set -euo pipefail
request=$(jq -r '[.messages[].content] | join("\n\n")' "$ART_SCENARIO_FILE")
jq -n '{
    model: "art/policy",
    provider: {art: {
        npm: "@ai-sdk/openai-compatible",
        options: {baseURL: env.OPENAI_BASE_URL},
        models: {policy: {}}
    }},
    mcp: {env: {type: "remote", url: env.ART_MCP_URL}},
    tools: {env_reply: false}
}' >opencode.json
opencode run "$request"
