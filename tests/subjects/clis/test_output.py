"""The printed output of clients is parsed: the last text, the session and the error."""

import json
from typing import Any

import pytest

from offbook.subjects.clis import AgentOutput, CliAgent, Continue, OpenCode, QwenCode

OPENCODE_ERROR = {"name": "APIError", "data": {"message": "never", "statusCode": 403}}
QWEN_ERROR = {"message": "[API Error: 403 never]"}


CASES: list[tuple[CliAgent, list[dict[str, Any]], AgentOutput]] = [
    (
        OpenCode(),
        [
            {"type": "step_start", "sessionID": "ses_1", "part": {"type": "step-start"}},
            {"type": "text", "sessionID": "ses_1", "part": {"text": "Let me look."}},
            {"type": "tool_use", "sessionID": "ses_1", "part": {"tool": "bash"}},
            {"type": "text", "sessionID": "ses_1", "part": {"text": "Done."}},
        ],
        AgentOutput("Done.", "ses_1"),
    ),
    (
        OpenCode(),
        [{"type": "error", "sessionID": "ses_1", "error": OPENCODE_ERROR}],
        AgentOutput("", "ses_1", "never"),
    ),
    (OpenCode(), [{"type": "error"}], AgentOutput("", "", "no error message")),
    (
        QwenCode(),
        [
            {"type": "assistant", "session_id": "s1", "message": {"content": []}},
            {"type": "result", "session_id": "s1", "is_error": False, "result": "Done."},
        ],
        AgentOutput("Done.", "s1"),
    ),
    (
        QwenCode(),
        [{"type": "result", "session_id": "s1", "is_error": True, "error": QWEN_ERROR}],
        AgentOutput("", "s1", "[API Error: 403 never]"),
    ),
    (OpenCode(), [], AgentOutput()),
    (QwenCode(), [], AgentOutput()),
]


@pytest.mark.parametrize("agent, lines, expected", CASES)
def test_the_events_of_a_client_are_parsed(
    agent: CliAgent, lines: list[dict[str, Any]], expected: AgentOutput
):
    stdout = "".join(f"{json.dumps(line)}\n" for line in lines)
    assert agent.parse_output(stdout, lines) == expected


def test_continue_prints_its_text_and_resumes_the_latest_session():
    output = Continue().parse_output("Done.\n", [])
    assert output == AgentOutput("Done.", "latest")
    agent = Continue(program="cn")
    assert "--resume" not in agent.command("Hi", "")
    assert "--resume" in agent.command("Hi", output.session)


def test_opencode_asks_for_a_title_only_in_a_new_session_without_one():
    assert "--title" in OpenCode().command("Hi", "")
    assert "--title" not in OpenCode(title="").command("Hi", "")
    assert OpenCode().command("Hi", "ses_1")[-2:] == ["--session", "ses_1"]
    assert OpenCode().stdin("Hi there") == b"Hi there"
