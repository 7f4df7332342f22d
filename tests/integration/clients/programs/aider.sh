#!/usr/bin/env bash
# aider: edits the files of its folder, by what the policy writes; it calls no tools.
set -euo pipefail
request=$(jq -r '[.messages[].content] | join("\n\n")' "$ART_SCENARIO_FILE")
aider --model openai/policy --no-show-model-warnings --no-check-update --analytics-disable \
    --yes-always --no-git --message "$request" *.py
