"""The files of a run have no secrets, and only their owner may read them."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offbook.evals import FinishedRun, RunOptions, read_results, run_pack

Write = Callable[[dict[str, Any]], Path]

KNOWN = "hunter2-very-secret-4411"  # that of a variable
KEY = "sk-ant-api03-" + "Zz9Zz9Qq8" * 10 + "AA"
SUBJECT = f"""
import os

def leak(value):
    return "key is {KEY} and " + os.environ["SHOP_API_KEY"]
"""
TASK = {"id": "t", "objective": "Find it", "expected": {"required_terms": [KNOWN, KEY]}}
MANIFEST = {"_type": "harn.context_eval.manifest.v1", "tasks": [TASK], "modes": [{"id": "cold"}]}
EXAMPLES = [
    {"id": "1", "expected": "in_scope", "prompt": f"Fix the parser of this repo, {KNOWN}"},
    {"id": "2", "expected": "out_of_scope", "prompt": f"Update the mobile app, {KEY}"},
]
TRANSCRIPT = [
    {"index": 0, "emitted_at_ms": 0, "type": "model_call", "text": f"{KNOWN} {KEY}"},
    {"index": 1, "emitted_at_ms": 100, "type": "tool_call", "tool_name": KNOWN},
]
LADDER = {"id": "l", "backend": {"path": "t.jsonl"}, "timeout_tiers": [{"id": "t"}]}
CASES = [
    {
        "id": "leak",
        "subject": "token.py:leak",  # a name of a secret, before the digest of the file
        "input": f"{KNOWN} {KEY}",
        "assertions": [{"kind": "output", "contains": "sorry"}],  # it fails, and quotes the output
    },
    {"id": "context", "manifest": "m.json"},
    {"id": "classifier", "dataset": "d.json"},
]


@pytest.fixture
def run_with_secrets(write: Write, monkeypatch: pytest.MonkeyPatch) -> Callable[[], FinishedRun]:
    """Return a function that runs cases of all kinds that write files, with the cache."""
    folder = write(
        {
            "pack.json": {"cases": CASES, "ladders": [LADDER]},
            "token.py": SUBJECT,
            "m.json": MANIFEST,
            "d.json": EXAMPLES,
            "t.jsonl": "".join(f"{json.dumps(line)}\n" for line in TRANSCRIPT),
        }
    )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SHOP_API_KEY", KNOWN)
    return lambda: run_pack([Path("pack.json")], RunOptions(cache=True))


def written_files() -> Iterator[Path]:
    return (path for path in Path(".offbook").rglob("*") if path.is_file())


def test_no_file_of_a_run_has_a_secret(run_with_secrets: Callable[[], FinishedRun]):
    run_with_secrets()
    contents = {str(path): path.read_text() for path in written_files()}
    kinds = {"traces", "cache", "reports", "ladders"}
    assert kinds <= {part for name in contents for part in Path(name).parts}
    assert [name for name, text in contents.items() if KNOWN in text or KEY in text] == []


def test_only_the_owner_may_read_the_files_of_a_run(run_with_secrets: Callable[[], FinishedRun]):
    run_with_secrets()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in written_files()}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


def test_a_cached_result_with_a_secret_has_the_same_verdict(
    run_with_secrets: Callable[[], FinishedRun],
):
    def first_result() -> Any:
        return next(r for r in read_results(run_with_secrets().folder) if r.id == "leak")

    first, second = first_result(), first_result()
    assert (first.cached, second.cached) == (False, True)
    assert first.status == "fail"
    assert second.verdicts == first.verdicts
