#!/usr/bin/env bash
# Asks a model about the disk. Needs curl and jq.
set -euo pipefail

messages=$(jq -n --arg text "$1" '[{role: "user", content: $text}]')
tools='[{"name": "kernel_name", "description": "The name of the kernel", "input_schema": {"type": "object", "properties": {}}}]'

while true; do
  body=$(jq -n --argjson messages "$messages" --argjson tools "$tools" \
    '{model: "claude-sonnet-4-5", max_tokens: 500, messages: $messages, tools: $tools}')
  reply=$(curl -sS https://api.anthropic.com/v1/messages \
    -H "x-api-key: $ANTHROPIC_API_KEY" -H "anthropic-version: 2023-06-01" \
    -H "content-type: application/json" -d "$body")
  if [ "$(jq -r .stop_reason <<<"$reply")" != tool_use ]; then
    jq -r '.content[0].text' <<<"$reply"
    exit 0
  fi
  id=$(jq -r '.content[] | select(.type == "tool_use") | .id' <<<"$reply")
  messages=$(jq --argjson reply "$reply" --arg id "$id" --arg result "$(uname -s) kernel" \
    '. + [{role: "assistant", content: $reply.content},
          {role: "user", content: [{type: "tool_result", tool_use_id: $id, content: $result}]}]' \
    <<<"$messages")
done
