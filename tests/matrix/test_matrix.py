"""Every client of the matrix calls its tool, tells the result, and understands the last words."""

import shutil
from typing import Any

import pytest

from offbook.runs.rehearsal import drive
from offbook.subjects.clis.command import Command
from offbook.trace.observe import rebuild
from tests.matrix.rows import ROWS, SCRIPTS, WHOLE, Row


def check_home(row: Row, record_property: Any) -> None:
    """What is not installed is no pass: who asked for the whole matrix hears it as a failure."""
    home = row.lives
    if not WHOLE and (home is not None or not row.stream):
        pytest.skip("./dev clients runs the whole matrix")
    if home is None:
        return
    if not home.ready:
        why = home.trouble.read_text(encoding="utf-8") if home.trouble.exists() else "not tried"
        record_property("missing", "NOT INSTALLED")
        pytest.fail(f"{home.name} is not installed: {why}", pytrace=False)
    if home.npm and row.script.endswith(".mjs"):
        for script in SCRIPTS.glob("*.mjs"):
            shutil.copy(script, home.folder)


@pytest.mark.clients
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_client_does_both_steps(row: Row, record_property: Any):
    check_home(row, record_property)
    subject = Command(row.command, name=row.client, env=row.environment, deadline=60)
    with drive(subject) as rehearsal:
        run = rehearsal.run(row.turn)
        said = rehearsal.events.named("process.event")[-1].data
        record_property("client", said["versions"])
        assert said["text"] == row.text
        requests = list(rebuild(rehearsal.events.all))
        assert row.stream in {request.stream for request in requests[-1:]}
        called = [name for name in run.tools if name != "final_answer"]
        for name in called:
            told = run.results(name)[0].text if not row.flat else requests[-1].messages[-1].text
            assert "21 degrees in Paris" in told
