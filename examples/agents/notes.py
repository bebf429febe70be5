"""The agent under test: it writes the task to its notes and publishes an event."""

import pathlib
import re
import sys

prompt = sys.stdin.read()
task = re.search(r"## Task\n(.*)", prompt)[1]
with pathlib.Path("notes.md").open("a") as notes:
    notes.write(f"- {task}\n")
sys.stdout.write(f'<event topic="note.taken">{task}</event>\nLOOP_COMPLETE\n')
