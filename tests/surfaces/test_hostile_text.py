"""Text of others on a terminal: no command prints a control or bidi character as it is.

The text is in the content of files, in their names, and in arguments.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offbook.secrets import CONTROL_SYMBOLS
from tests.surfaces.conftest import Offbook

HOSTILE = "a\x1b[2Jb\x9bc\u202ed\u2066e\x07f\u200fg\u2028h\x7fi"
NAME = "x\x1b[2J\u202ey\x9b"  # of a file
REQUEST = {"prompt_hash": "sha256:aa", "messages": [{"user": HOSTILE}]}


def events() -> str:
    data = {
        "_meta.run_start": {"command": [HOSTILE], "subject": HOSTILE},
        HOSTILE: {HOSTILE: HOSTILE},
        "tool.call": {"call_id": HOSTILE, "tool": HOSTILE, "input": {HOSTILE: HOSTILE}},
        "tool.result": {
            "call_id": HOSTILE,
            "tool": HOSTILE,
            "is_error": True,
            "content": [{"type": "text", "text": HOSTILE}],
        },
        "tool.error": {"call_id": HOSTILE, "tool": HOSTILE, "error": HOSTILE},
        "check.verdict": {"check": HOSTILE, "status": "failed", "message": HOSTILE},
    }
    lines = [
        json.dumps({"ts": number, "event": name, "data": fields, "seq": number})
        for number, (name, fields) in enumerate(data.items(), 1)
    ]
    return "\n".join(lines) + "\n"


def write_files(folder: Path) -> None:
    (folder / f"{NAME}.jsonl").write_text(events())
    (folder / "other.jsonl").write_text(events().replace("[2J", "[3J"))
    cassette = {"interactions": [{"request": REQUEST, "response": {"output": HOSTILE}}]}
    playbook = [{"when": HOSTILE, "do": [{"say": HOSTILE}]}]
    wrong = [{"when": HOSTILE, HOSTILE: HOSTILE}]
    run = {"task": HOSTILE, "mock_responses": [{"output": HOSTILE}]}
    asserted = [{"type": "stdout_contains", "pattern": f"{HOSTILE} other"}]
    scenario = {"name": HOSTILE, "run": run, "assert": asserted}
    case = {"id": HOSTILE, "subject": HOSTILE, "input": HOSTILE}
    files = {
        f"{NAME}.yaml": cassette,
        "playbook.yaml": playbook,
        "wrong.yaml": wrong,
        "scenario.yaml": scenario,
        "pack.json": {"id": HOSTILE, "cases": [case]},
        "unknown.json": {HOSTILE: HOSTILE},
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))  # JSON is YAML, too
    (folder / "test_it.py").write_text(f"def test_{'x'}():\n    pass  # {HOSTILE!r}\n")


COMMANDS = (
    *(("show", f"{NAME}.jsonl"), ("show", f"{NAME}.yaml"), ("show", f"{NAME}.yaml", "1")),
    *(("show", HOSTILE), ("show", f"{NAME}.jsonl", "--full"), ("show", "wrong.yaml")),
    ("compare", f"{NAME}.jsonl", "other.jsonl"),
    *(("report", f"{NAME}.jsonl", "--format", kind) for kind in ("tap", "junit", "markdown")),
    *(("report", f"{NAME}.jsonl", "--format", kind) for kind in ("ctrf", "json", "github", "otlp")),
    ("report", f"{NAME}.jsonl", "--format", HOSTILE),
    *(("cassette", "verify", f"{NAME}.yaml"), ("cassette", "verify", HOSTILE)),
    *(("scenario", "run", "scenario.yaml"), ("scenario", "run", HOSTILE)),
    *(("scenario", "run", "unknown.json"), ("scenario", "run", "scenario.yaml", "--json")),
    *(("eval", "run", "pack.json"), ("eval", "run", HOSTILE), ("eval", "run", "unknown.json")),
    *(("run", "--playbook", "wrong.yaml", "--", "true"), ("run", "--", HOSTILE)),
    *(("run", "--playbook", "playbook.yaml", "--", "true"), ("run", HOSTILE)),
    *(("replay", f"{NAME}.yaml", "--", "true"), ("replay", HOSTILE, "--", "true")),
    *(("import", "unknown.json", "-o", "out.yaml"), ("import", HOSTILE, "-o", "out.yaml")),
    *(("lint", "test_it.py"), ("lint", HOSTILE), ("view", HOSTILE), ("serve", HOSTILE)),
    *(("golden", "validate", HOSTILE), ("workspace", "inspect", HOSTILE)),
    *(("explore", HOSTILE, "Hi"), ("pattern", "run", HOSTILE), ("sandbox", HOSTILE)),
    *((HOSTILE,), ("show", f"--{HOSTILE}"), ("eval", HOSTILE), ("checkup", HOSTILE, "Hi")),
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(map(ascii, words))[:60])
def test_a_command_prints_no_control_character(
    arguments: tuple[str, ...],
    workspaces: Path,
    tmp_path: Path,
    offbook_command: Offbook,
    monkeypatch: pytest.MonkeyPatch,
):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = offbook_command(*arguments)
    printed = result.out + result.err
    assert printed.strip()
    assert {char for char in printed if ord(char) in CONTROL_SYMBOLS} == set(), ascii(printed)
