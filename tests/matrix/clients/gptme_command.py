"""gptme: commands of a shell, from a provider whose host it has in its code."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from harness import MODEL, PROMPT, STREAM, VARIANT, print_result

logs = Path("logs").absolute()
(logs / "run").mkdir(parents=True)
# A conversation with a name: it asks for no title.
(logs / "run" / "config.toml").write_text('[chat]\nname = "Weather"\n')
stream = "--stream" if STREAM else "--no-stream"
command = [
    *(
        Path(sys.executable).with_name("gptme"),
        "--non-interactive",
        stream,
        "--tools",
        "shell,complete",
    ),
    *("--model", f"{VARIANT}/{MODEL}", "--name", "run", "--no-confirm", PROMPT),
]
# It counts tokens by an estimate, without the tables that tiktoken would load.
settings = {"GPTME_LOGS_HOME": str(logs), "GPTME_TIKTOKEN_TIMEOUT": "0"}
subprocess.run(command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, check=False)
[log] = logs.rglob("conversation.jsonl")
messages = [json.loads(line) for line in log.read_text().splitlines()]
answers = [message["content"] for message in messages if message["role"] == "assistant"]
# The last one ends with a call of a tool, as text.
print_result(answers[-1].partition("```")[0].strip(), versions=f"gptme {version('gptme')}")
