"""Qwen Code, with the model of every provider, started as its documentation describes."""

import json
import os
import subprocess
from pathlib import Path

from harness import MODEL, PROMPT, VARIANT, print_result

PREFIX = Path(os.environ["PREFIX"]) / "node_modules"
AUTH = {"chat": "openai", "responses": "openai-responses", "google": "gemini"}
SETTINGS = {
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
}
settings = Path(os.environ["HOME"]) / ".qwen" / "settings.json"
settings.parent.mkdir()
settings.write_text(json.dumps(SETTINGS))
command = [PREFIX / ".bin" / "qwen", "--auth-type", AUTH.get(VARIANT, VARIANT), "--model", MODEL]
command += ["--output-format", "stream-json", "--yolo", PROMPT]
completed = subprocess.run(
    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True
)
lines = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]
manifest = PREFIX / "@qwen-code" / "qwen-code" / "package.json"
print_result(
    [line["result"] for line in lines if line["type"] == "result"][-1],
    versions=f"qwen-code {json.loads(manifest.read_text())['version']}",
)
