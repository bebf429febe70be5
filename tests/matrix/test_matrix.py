"""Every client of the matrix calls its tool, tells the result, and understands the last words."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from offbook.runs.api import drive
from offbook.subjects.clis.command import Command
from offbook.trace.instrument import rebuild_requests
from tests.matrix.homes import HOMES
from tests.matrix.rows import ROWS, WHOLE, Row

ALWAYS = [row for row in ROWS if row.lives is None and row.stream]
DRIVEN = Path(__file__).parent / "driven"


def check_home(row: Row, record_property: Any) -> None:
    """What is not installed is no pass: who asked for the whole matrix hears it as a failure."""
    home = row.lives
    if home is None:
        return
    if not home.ready:
        record_property("missing", "NOT INSTALLED")
        pytest.fail(home.complain(), pytrace=False)
    row.place()


@pytest.mark.clients
@pytest.mark.parametrize("row", ROWS if WHOLE else ALWAYS, ids=str)
def test_the_client_does_both_steps(row: Row, record_property: Any):
    check_home(row, record_property)
    subject = Command(row.command, name=row.client, env=row.environment, deadline=60)
    with drive(subject) as rehearsal:
        run = rehearsal.run(row.turn)
        said = rehearsal.events.named("process.event")[-1].data
        record_property("client", said["versions"])
        assert said["text"] == row.text
        requests = list(rebuild_requests(rehearsal.events.all))
        assert row.stream in {request.stream for request in requests[-1:]}
        called = [name for name in run.tools if name != "final_answer"]
        for name in called:
            told = run.results(name)[0].text if not row.flat else requests[-1].messages[-1].text
            assert "21 degrees in Paris" in told


@pytest.mark.clients
@pytest.mark.skipif(not WHOLE, reason="./dev clients runs the whole matrix")
@pytest.mark.parametrize("script", sorted(DRIVEN.glob("*.py")), ids=lambda path: path.stem)
def test_the_agent_is_driven_where_its_packages_are(script: Path, tmp_path: Path):
    home = HOMES[script.stem.removeprefix("drive_").replace("_", "-")]
    if not home.ready:
        pytest.fail(home.complain(), pytrace=False)
    ended = subprocess.run(
        [home.python, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "driven"
