"""Fixtures for the tests of eval packs."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.evals import (
    EvalOptions,
    FinishedRun,
    RunOptions,
    evaluate_case,
    read_pack,
    run_pack,
    summarize_cases,
    summarize_run,
)

Files = dict[str, Any]
RunPack = Callable[..., FinishedRun]

RUN: dict[str, Any] = {
    "_type": "run_record",
    "id": "run_1",
    "workflow_id": "flow",
    "status": "completed",
    "stages": [
        {
            "node_id": "plan",
            "status": "completed",
            "outcome": "success",
            "visible_text": "The plan is ready",
            "artifacts": [{"id": "a", "kind": "plan"}],
        }
    ],
    "usage": {
        "input_tokens": 3,
        "output_tokens": 4,
        "total_duration_ms": 12,
        "total_cost": 0.01,
        "models": ["mock"],
    },
    "hitl_questions": [{"request_id": "q1", "prompt": "Which repository should I patch?"}],
    "tool_recordings": [{"tool_name": "read", "args_hash": "1", "result": "ok"}],
    "policy": {"side_effect_level": "read_only"},
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Files], Path]:
    """Return a function that writes files to a folder: texts as they are, other values as JSON."""

    def write_files(files: Files) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path

    return write_files


@pytest.fixture
def run_files(
    write: Callable[[Files], Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> RunPack:
    """Return a function that writes a pack with its files and runs it.

    Without options, the cases are evaluated in this process: a worker for each test takes time.
    """
    # The modules of a process are a part of each result: those of other tests may be deleted soon.
    # The checkout and its environment stay, wherever they are.
    installed, temporary = (str(root), sys.prefix), tempfile.gettempdir()
    for name, module in [*sys.modules.items()]:
        file = getattr(module, "__file__", None)
        if file and file.startswith(temporary) and not file.startswith(installed):
            monkeypatch.delitem(sys.modules, name)
    # So are the names in a folder of modules: other tests may add some to the checkout.
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(root)])

    def run(pack: Any, files: Files | None = None, **options: Any) -> FinishedRun:
        name = "pack.toml" if isinstance(pack, str) else "pack.json"
        folder = write({name: pack, "run.json": RUN, **(files or {})})
        monkeypatch.chdir(folder)
        if options:
            return run_pack([folder / name], RunOptions(**options))
        loaded = read_pack(folder / name)
        results = [
            evaluate_case(loaded, case, EvalOptions(traces=str(folder / "traces")), number=number)
            for number, case in enumerate(loaded.pack.cases)
        ]
        cases = summarize_cases(results)
        return FinishedRun(folder, summarize_run("run", [loaded.id], cases), cases)

    return run
