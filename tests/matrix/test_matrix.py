"""Every client of the matrix calls its tool, sends the result, and receives the final text."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from offbook.exchange import Image
from offbook.runs import drive
from offbook.subjects.clis import Command
from offbook.trace import rebuild_requests
from tests.forked import forked_command
from tests.matrix.homes import HOMES
from tests.matrix.rows import ROWS, SEALED, WHOLE, Row

LOCKED = [row for row in ROWS if row.home is None and row.stream]
IMPORTS = {
    "openai": ["openai"],
    "openai-agents": ["agents"],
    "anthropic": ["anthropic"],
    "google-genai": ["google.genai"],
    "pydantic-ai": [
        *("pydantic_ai", "pydantic_ai.models.openai"),
        *("pydantic_ai.models.anthropic", "pydantic_ai.models.google"),
    ],
    "langchain": ["langchain.agents", "langchain_anthropic", "langchain_openai"],
    "smolagents": ["smolagents"],
}
DRIVEN = Path(__file__).parent / "driven"
WATCH = Path(__file__).parent / "watch"


def require_home(row: Row, record_property: Any) -> None:
    """Fail if the home of the row is not installed; copy its scripts otherwise."""
    home = row.home
    if home is None:
        return
    if not home.ready:
        record_property("missing", "NOT INSTALLED")
        pytest.fail(home.describe_missing(), pytrace=False)
    row.copy_scripts()


@pytest.mark.clients
@pytest.mark.parametrize("row", ROWS if WHOLE else LOCKED, ids=str)
def test_the_client_sends_the_tool_result_and_receives_the_text(
    row: Row, record_property: Any, tmp_path: Path
):
    require_home(row, record_property)
    connections = tmp_path / "connections.txt"
    watch = {"PYTHONPATH": str(WATCH), "OFFBOOK_CONNECTIONS": str(connections)}
    command = row.command
    if not WHOLE and row.client in IMPORTS:  # the time of the import is most of a row
        command = forked_command(*command[1:], imports=IMPORTS[row.client])
    subject = Command(command, name=row.client, env={**row.environment, **watch}, deadline=300)
    with drive(subject, lenient=row.lenient, sealed=SEALED) as rehearsal:
        run = rehearsal.run(row.turn, *row.roles)
        output = rehearsal.events.named("process.event")[-1].data
        record_property("client", output["versions"])
        assert output["text"] == row.text
        requests = list(rebuild_requests(rehearsal.events.all))
        # A side request, such as aider's for a commit message, comes after the agent's own.
        assert requests[-1 - len(row.roles)].stream is row.stream
        if row.results_as_text:
            assert any("21 degrees in Paris" in request.messages[-1].text for request in requests)
        else:
            # Of an output tool, and of the last call of mini-swe-agent, there is no result.
            for name in {*run.tools.known()} - {"final_answer", "submit"}:
                result = run.results(name)[0]
                # The result of a computer is a screenshot.
                shown = any(isinstance(block, Image) for block in result.content)
                assert shown or "21 degrees in Paris" in result.text
    assert not connections.exists(), connections.read_text()


@pytest.mark.clients
@pytest.mark.skipif(not WHOLE, reason="./dev clients runs the whole matrix")
@pytest.mark.parametrize("script", sorted(DRIVEN.glob("*.py")), ids=lambda path: path.stem)
def test_the_agent_is_driven_in_its_home(script: Path, tmp_path: Path):
    home = HOMES[script.stem.removeprefix("drive_").replace("_", "-")]
    if not home.ready:
        pytest.fail(home.describe_missing(), pytrace=False)
    completed = subprocess.run(
        [home.python, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stdout.splitlines()[-1] == "driven"
