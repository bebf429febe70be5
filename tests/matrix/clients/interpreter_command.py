"""Open Interpreter: code as a tool call, and code in the text. It streams always."""

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from harness import MODEL, PROMPT, VARIANT, print_result

functions = "--llm_supports_functions" if VARIANT == "function" else "--no-llm_supports_functions"
command = [
    *(Path(sys.executable).with_name("interpreter"), "--stdin", "--auto_run", "--offline"),
    *("--model", f"openai/{MODEL}", functions, "--context_window", "100000", "--max_tokens", "999"),
]
# Otherwise it downloads a tokenizer, which litellm has.
litellm = find_spec("litellm")
assert litellm is not None
assert litellm.origin is not None
tokenizers = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
completed = subprocess.run(
    command,
    env={**os.environ, "TIKTOKEN_CACHE_DIR": str(tokenizers)},
    input=PROMPT,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
)
answer = completed.stdout.strip().splitlines()[-1]
print_result(answer, versions=f"open-interpreter {version('open-interpreter')}")
