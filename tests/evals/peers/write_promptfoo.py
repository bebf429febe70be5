"""Evaluates the configuration with promptfoo, whose results have the verdicts."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from agent import ANSWERS

folder, program = Path(sys.argv[1]).resolve(), sys.argv[2]
for name in ("promptfooconfig.yaml", "provider.js"):
    shutil.copy(Path(__file__).with_name(name), folder)
(folder / "answers.json").write_text(json.dumps(ANSWERS))
command = [program, "eval", "--no-cache", "--no-table", "-o", "promptfoo.json"]
# It ends with 100 if a test failed.
ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
if not (folder / "promptfoo.json").exists():
    sys.exit(ended.stdout + ended.stderr)
