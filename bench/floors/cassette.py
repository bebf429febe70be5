"""The commands for a cassette in bare Python: what they cost without Offbook.

    python bench/floors/cassette.py list|show FILE

`list` reads the file and counts its interactions. `show` also parses each of them, with the same
YAML library, and prints a line for it. Neither compares, checks, digests or hides anything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import yaml_rs

START = b"\n  - id: "
COMMAND, FILE = sys.argv[1], Path(sys.argv[2])

raw = FILE.read_bytes()
if COMMAND == "list":
    print(raw.count(START))
else:
    for part in raw.split(START)[1:]:
        [found] = cast("Any", yaml_rs.loads((START + part).decode()))
        answer = found["response"]["output"]
        print(f"{found['id']}. {found['request']['prompt_preview']} -> {answer[:60]}")
