"""opencode, with the model of every provider, started as its documentation describes."""

import json
import os
import subprocess
from pathlib import Path

from harness import ANTHROPIC, GOOGLE, OPENAI, PROMPT, VARIANT, print_result

PREFIX = Path(os.environ["PREFIX"]) / "node_modules"
PROVIDERS = {
    "compatible": ("@ai-sdk/openai-compatible", OPENAI),
    "title": ("@ai-sdk/openai-compatible", OPENAI),  # without --title, it asks for one
    "responses": ("@ai-sdk/openai", OPENAI),
    "anthropic": ("@ai-sdk/anthropic", f"{ANTHROPIC}/v1"),
    "google": ("@ai-sdk/google", f"{GOOGLE}/v1beta"),
}
package, url = PROVIDERS[VARIANT]
provider = {"npm": package, "options": {"baseURL": url, "apiKey": "none"}, "models": {"m": {}}}
config = {"provider": {"fake": provider}, "permission": {"*": "allow"}, "autoupdate": False}
options = ["--model", "fake/m", "--format", "json"]
options += [] if VARIANT == "title" else ["--title", "Weather"]
completed = subprocess.run(
    [PREFIX / ".bin" / "opencode", "run", *options],
    input=PROMPT,  # as an argument, it would be sent in quotes
    stdout=subprocess.PIPE,
    env={**os.environ, "OPENCODE_CONFIG_CONTENT": json.dumps(config)},
    text=True,
    check=True,
)
lines = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]
version = json.loads((PREFIX / "opencode-ai" / "package.json").read_text())["version"]
print_result(
    [line["part"]["text"] for line in lines if line["type"] == "text"][-1],
    versions=f"opencode-ai {version}",
)
