"""The command-line agents, started directly as their documentation describes."""

import json
import os
import subprocess
from pathlib import Path

from harness import OPENAI, PROMPT, VARIANT, print_result

BIN = Path(os.environ["PREFIX"]) / "node_modules" / ".bin"
HOME = Path(os.environ["HOME"])
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}
CODEX = ["codex", "exec", "--skip-git-repo-check", "--json", "-m", "gpt-offbook"]
NO_TELEMETRY = ["-c", "analytics.enabled=false", "--disable", "plugins"]
UNSANDBOXED = ["--dangerously-bypass-approvals-and-sandbox", PROMPT]
CLAUDE = ["claude", "-p", PROMPT, "--model", "claude-offbook", "--output-format", "stream-json"]
GEMINI = ["gemini", "-p", PROMPT, "--yolo", "--skip-trust", "-o", "json"]
PROVIDER = f'{{name="fake",base_url="{OPENAI}",env_key="OPENAI_API_KEY",wire_api="responses"}}'
CUSTOM_PROVIDER = ["-c", 'model_provider="fake"', "-c", f"model_providers.fake={PROVIDER}"]
COMMANDS = {
    "codex": [*CODEX, *CUSTOM_PROVIDER, *NO_TELEMETRY, *UNSANDBOXED],
    # the built-in provider uses a WebSocket
    "codex-websocket": [*CODEX, "-c", f'openai_base_url="{OPENAI}"', *NO_TELEMETRY, *UNSANDBOXED],
    "claude": [*CLAUDE, "--verbose", "--allowedTools", "Bash"],
    "claude-bare": [*CLAUDE, "--verbose", "--allowedTools", "Bash", "--bare"],
    "gemini": [*GEMINI, "-m", "gemini-2.5-pro"],
    "gemini-router": GEMINI,  # without a model, another model selects it
}


def read_answer(stdout: str) -> str:
    """Return the last answer in the output of an agent."""
    if VARIANT.startswith("gemini"):
        return json.loads(stdout)["response"]
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    if VARIANT.startswith("claude"):
        return [line["result"] for line in lines if line.get("type") == "result"][-1]
    items = [line["item"] for line in lines if line.get("type") == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"][-1]


(HOME / ".gemini").mkdir()
(HOME / ".gemini" / "settings.json").write_text(json.dumps(SETTINGS))
command = COMMANDS[VARIANT]
completed = subprocess.run(
    [BIN / command[0], *command[1:]],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    env={**os.environ, "CODEX_API_KEY": "none"},
    text=True,
    check=True,
)
package = {"codex": "@openai/codex", "claude": "@anthropic-ai/claude-code"}.get(command[0])
manifest = BIN.parent / (package or "@google/gemini-cli") / "package.json"
print_result(
    read_answer(completed.stdout),
    versions=f"{command[0]} {json.loads(manifest.read_text())['version']}",
)
