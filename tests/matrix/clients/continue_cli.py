"""Continue's `cn`, with the model of every provider, started as its documentation describes."""

import json
import os
import subprocess
from pathlib import Path

from harness import ANTHROPIC, GOOGLE, MODEL, OPENAI, PROMPT, VARIANT, print_result

PREFIX = Path(os.environ["PREFIX"]) / "node_modules"
PROVIDERS = {
    "chat": ("openai", OPENAI),
    "anthropic": ("anthropic", f"{ANTHROPIC}/v1"),
    "google": ("gemini", f"{GOOGLE}/v1beta"),
}
provider, url = PROVIDERS[VARIANT]
model = {"name": MODEL, "provider": provider, "model": MODEL, "apiBase": url, "apiKey": "none"}
config = {"name": "weather", "version": "1.0.0", "schema": "v1", "models": [model]}
file = Path(os.environ["HOME"]) / "config.yaml"
file.write_text(json.dumps(config))  # JSON is YAML, too
completed = subprocess.run(
    [PREFIX / ".bin" / "cn", "--print", "--auto", "--config", file, PROMPT],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
)
manifest = PREFIX / "@continuedev" / "cli" / "package.json"
print_result(
    completed.stdout.strip(),
    versions=f"@continuedev/cli {json.loads(manifest.read_text())['version']}",
)
