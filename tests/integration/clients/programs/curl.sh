#!/usr/bin/env bash
# An agent that is a shell script: curl and jq are all it needs.
set -euo pipefail
messages=$(jq .messages "$ART_SCENARIO_FILE")
tools=$(jq .tools "$ART_SCENARIO_FILE")
post() { curl --fail-with-body -sS -H "Content-Type: application/json" --data @- "$1"; }

for _ in {1..20}; do
    message=$(jq -n --argjson m "$messages" --argjson t "$tools" \
        '{model: "policy", messages: $m, tools: $t}' |
        post "$OPENAI_BASE_URL/chat/completions" | jq '.choices[0].message')
    messages=$(jq -n --argjson m "$messages" --argjson n "$message" '$m + [$n]')
    [ "$(jq '.tool_calls | length' <<<"$message")" -gt 0 ] || break # its last words are the answer
    while read -r call; do
        result=$(jq '{jsonrpc: "2.0", id: 1, method: "tools/call", params: {name: .function.name,
            arguments: (.function.arguments | fromjson)}}' <<<"$call" |
            post "$ART_MCP_URL" | jq '.result.content[0].text')
        messages=$(jq -n --argjson m "$messages" --argjson c "$call" --argjson r "$result" \
            '$m + [{role: "tool", tool_call_id: $c.id, content: $r}]')
    done < <(jq -c '.tool_calls[]' <<<"$message")
done
