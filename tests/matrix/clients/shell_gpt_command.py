"""shell-gpt: a command with a function of the user."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from harness import MODEL, OPENAI, PROMPT, print_result

FUNCTION = '''
from pydantic import BaseModel

class Function(BaseModel):
    """Get the weather in a city."""

    city: str

    @classmethod
    def execute(cls, city):
        return f"21 degrees in {city}"

    @classmethod
    def openai_schema(cls):
        parameters = cls.model_json_schema()
        function = {"name": "get_weather", "description": cls.__doc__, "parameters": parameters}
        return {"type": "function", "function": function}
'''
functions = Path("functions")
functions.mkdir()
(functions / "get_weather.py").write_text(FUNCTION)
settings = {
    "API_BASE_URL": OPENAI,
    "DEFAULT_MODEL": MODEL,
    "OPENAI_FUNCTIONS_PATH": str(functions),
    "PRETTIFY_MARKDOWN": "false",
}
command = [Path(sys.executable).with_name("sgpt"), "--no-cache", PROMPT]
ended = subprocess.run(
    command,
    env={**os.environ, **settings},
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
)
sys.stderr.write(ended.stderr)
# Its first line names the call.
lines = ended.stdout.strip().splitlines() or [""]
print_result(lines[-1], versions=f"shell-gpt {version('shell-gpt')}")
