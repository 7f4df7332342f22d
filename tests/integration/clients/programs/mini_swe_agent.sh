#!/usr/bin/env bash
# mini-swe-agent: works in a shell, in its folder.
set -euo pipefail
request=$(jq -r '[.messages[].content] | join("\n\n")' "$ART_SCENARIO_FILE")
export MSWEA_CONFIGURED=true MSWEA_COST_TRACKING=ignore_errors
mini --model openai/policy --yolo --exit-immediately --task "$request"
