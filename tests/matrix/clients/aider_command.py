"""aider: it edits a file, runs a test, sends its output to the model, and commits the work."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from harness import MODEL, PROMPT, STREAM, print_result

NAME = f"openai/{MODEL}"
# Without it, aider fetches a price list.
Path(".aider.model.metadata.json").write_text(json.dumps({NAME: {"max_input_tokens": 100_000}}))
Path("weather.txt").write_text("unknown\n")
GIT = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
environment = {**os.environ, **GIT, "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "a@b.org"}
for words in (["init", "--quiet"], ["add", "weather.txt"], ["commit", "--quiet", "-m", "Start"]):
    subprocess.run(["git", *words], env=environment, check=True)  # noqa: S607 - any git
command = [
    *(Path(sys.executable).with_name("aider"), "--model", NAME, "--edit-format", "whole"),
    *("--yes-always", "--no-pretty", "--no-show-model-warnings", "--no-gitignore"),
    *("--test-cmd", "echo 21 degrees in Paris; grep -q sunny weather.txt", "--auto-test"),
    *("--stream" if STREAM else "--no-stream", "--message", PROMPT, "weather.txt"),
]
subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True)
log = ["git", "log", "--format=%s", "-1"]
subject = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
text = Path("weather.txt").read_text().strip()
print_result(f"{subject}: {text}", versions=f"aider-chat {version('aider-chat')}")
