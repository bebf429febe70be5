"""The agent under test: it notes the task down, and says that it is done."""

import pathlib
import re
import sys

prompt = sys.stdin.read()
task = re.search(r"## Task\n(.*)", prompt)[1]
with pathlib.Path("notes.md").open("a") as notes:
    notes.write(f"- {task}\n")
sys.stdout.write(f'<event topic="note.taken">{task}</event>\nLOOP_COMPLETE\n')
