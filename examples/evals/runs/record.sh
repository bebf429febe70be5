#!/bin/sh
# Runs Claude Code with fix_typo.yaml as its model, and writes its output to the given file:
#     sh record.sh fix_typo.jsonl
# The folder and the home are new, so that the output names nothing of this machine.
set -eu
playbook=$(cd "$(dirname "$0")" && pwd)/fix_typo.yaml
output=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=$(mktemp -d "${TMPDIR:-/tmp}/kettle.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/home" "$folder/kettle"
cd "$folder/kettle"
printf '# Kettel\n\nA kettle for tea.\n' >README.md
HOME=$folder/home offbook run --script "$playbook" -- sh -c '
    claude --print "Fix the typo in the heading of README.md" --model claude-sonnet-4-5 \
        --output-format stream-json --verbose --allowedTools Read,Edit </dev/null >"$1"
' claude "$output"
grep -q "# Kettle" README.md
