"""An agent tests an agent: a coding agent with a scripted model uses Offbook's MCP tools."""

import json
import sys
from pathlib import Path

import pytest

from offbook import ClaudeCode, Codex, GeminiCli, call, drive, say, when

HERE = Path(__file__).parent
OFFBOOK = [sys.executable, "-m", "offbook", "mcp"]
# A client, and its prefix for the tools of a server named offbook.
TESTERS = [(Codex, ""), (ClaudeCode, "mcp__offbook__"), (GeminiCli, "mcp_offbook_")]
ASSERTIONS = [
    {"type": "exit_code", "expected": 0},
    {"type": "event_occurred", "topic": "note.taken"},
    {"type": "file_contains", "path": "notes.md", "pattern": "- Buy milk"},
    {"type": "file_exists", "path": "receipt.md"},  # fails: the agent writes no receipt
]


def client_case(tester, prefix):
    """Return the case of a client, skipped if the client is not installed."""
    missing = tester.client.find() is None
    skipped = pytest.mark.skipif(missing, reason=f"{tester.client.title} is not installed")
    marks = [pytest.mark.clients, skipped]
    return pytest.param(tester, prefix, id=tester.name, marks=marks)


@pytest.mark.parametrize("tester, prefix", [client_case(*each) for each in TESTERS])
def test_a_coding_agent_tests_another_agent(tester, prefix, tmp_path):
    results = {}

    def use(tool, **params):
        def store(result):
            results[tool] = read_json(result.text)
            if tool == "test_report":
                results["junit"] = Path(results[tool]["report_path"]).read_text()

        return call(prefix + tool, {"workspace_id": "notes", **params}).then(store)

    script = [
        use("test_setup", fixtures={"notes.py": (HERE / "notes.py").read_text()}),
        use("test_run", task="Buy milk", backend="command", command=[sys.executable, "notes.py"]),
        use("test_assert", assertions=ASSERTIONS),
        use("test_report", format="junit", test_name="notes", include_traces=True),
        use("test_cleanup", preserve_session=True),
        say("Three of four assertions pass: the receipt is missing."),
    ]
    env = {"TMPDIR": str(tmp_path)}  # the workspaces are kept here after the client exits
    with drive(tester(mcp={"offbook": OFFBOOK}, env=env)) as rehearsal:
        run = rehearsal.run(when("Test the note taker", script))

    assert not any(result.failed for result in run.events.tool_results)
    assert results["test_run"]["termination_reason"] == "CompletionPromise"
    assert [each["passed"] for each in results["test_assert"]["results"]] == [
        True,
        True,
        True,
        False,
    ]
    assert 'tests="4"' in results["junit"]
    assert 'failures="1"' in results["junit"]
    assert results["test_cleanup"]["preserved_files"] == ["session.jsonl"]
    session = Path(results["test_run"]["session_file"])
    assert [path.name for path in session.parent.iterdir()] == ["session.jsonl"]
    verdicts = [line for line in session.read_text().splitlines() if '"check.verdict"' in line]
    assert len(verdicts) == len(ASSERTIONS)


def read_json(text):
    """Return the JSON in a tool result; some clients add text around it."""
    return json.JSONDecoder().raw_decode(text, text.index("{"))[0]
