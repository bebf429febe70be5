"""mini-swe-agent: commands as tool calls on two APIs of OpenAI, and as texts."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from harness import MODEL, OPENAI, PROMPT, VARIANT, print_result

CONFIG, CLASS = {
    "chat": ("mini.yaml", "litellm"),
    "responses": ("mini.yaml", "litellm_response"),
    "text": ("mini_textbased.yaml", "litellm_textbased"),
}[VARIANT]
command = [
    *(Path(sys.executable).with_name("mini"), "--yolo", "--exit-immediately"),
    *("--model", f"openai/{MODEL}", "--model-class", CLASS, "--task", PROMPT),
    *("--config", CONFIG, "--config", f"model.model_kwargs.api_base={OPENAI}"),
    *("--output", "run.json"),
]
# Its first start asks for settings, and an unknown model has no price.
settings = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
subprocess.run(command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, check=True)
run = json.loads(Path("run.json").read_text())
print_result(
    run["info"]["submission"].strip(), versions=f"mini-swe-agent {version('mini-swe-agent')}"
)
