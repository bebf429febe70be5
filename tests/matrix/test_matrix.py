"""Every client of the matrix calls its tool, sends the result, and receives the final text."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from offbook.runs.api import drive
from offbook.subjects.clis.command import Command
from offbook.trace.instrument import rebuild_requests
from tests.matrix.homes import HOMES
from tests.matrix.rows import ROWS, WHOLE, Row

LOCKED = [row for row in ROWS if row.home is None and row.stream]
DRIVEN = Path(__file__).parent / "driven"


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
def test_the_client_sends_the_tool_result_and_receives_the_text(row: Row, record_property: Any):
    require_home(row, record_property)
    subject = Command(row.command, name=row.client, env=row.environment, deadline=60)
    with drive(subject) as rehearsal:
        run = rehearsal.run(row.turn)
        output = rehearsal.events.named("process.event")[-1].data
        record_property("client", output["versions"])
        assert output["text"] == row.text
        requests = list(rebuild_requests(rehearsal.events.all))
        assert row.stream in {request.stream for request in requests[-1:]}
        called = [name for name in run.tools if name != "final_answer"]
        for name in called:
            result = requests[-1].messages[-1] if row.results_as_text else run.results(name)[0]
            assert "21 degrees in Paris" in result.text


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
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stdout.splitlines()[-1] == "driven"
