"""Twelve published MCP servers: a script, a golden of the tools, and a search for each.

The goldens are in `requests/`: a new version of a server changes them, and shows what a model reads
differently.
"""

from typing import Any

import pytest

from offbook import call, drive, say, when
from offbook.errors import DeadlineExceeded, OffbookWarning
from offbook.explore import explore
from offbook.mcp import McpServer
from tests.matrix.rows import WHOLE
from tests.mcp.published_servers import PROMPT, SERVERS, script, values, world


def installed(name: str) -> Any:
    """Return a row that is skipped if its home is not installed."""
    home = SERVERS[name].home
    missing = pytest.mark.skipif(not (WHOLE or home.ready), reason="run ./dev clients")
    return pytest.param(name, marks=[pytest.mark.clients, pytest.mark.slow, missing])


rows = pytest.mark.parametrize("name", [installed(name) for name in SERVERS])


def test_there_are_twelve_servers():
    assert len({server.program for server in SERVERS.values()}) == 12


@rows
def test_a_published_server_plays_its_script(name: str):
    server = SERVERS[name]
    assert server.home.ready, server.home.describe_missing()
    with world(name) as rehearsal:
        run = rehearsal.run(script(name, rehearsal.cwd))
        assert run.output == "Done."
        assert len(run.events.executed) == len(run.scripted.calls) > 0
        assert len(run.requests[0].tools) == server.tools


@rows
def test_the_tools_of_a_published_server_have_a_golden(name: str, offbook: Any):
    rehearsal = offbook.drive(SERVERS[name].start())
    run = rehearsal.run(when(PROMPT, [say("Done.")]))
    offbook.check_requests(run, name)


@rows
def test_a_search_breaks_no_published_server(name: str):
    # An operation of `everything` takes as long as its arguments say (see below), and its
    # `gzip-file-as-resource` has a default address on another host, which is refused. The first
    # page of `fetch` waits for `npm install`, which reaches no other host either.
    known = [DeadlineExceeded, OffbookWarning] if name in {"everything", "fetch"} else []
    found = explore(
        lambda: world(name), PROMPT, runs=5, values=values(name), deadline=120, gives_up=known
    )
    assert found.behaviours == 5
    assert found.called


@pytest.mark.parametrize("name", [installed("everything")])
def test_an_operation_of_everything_has_no_upper_limit(name: str):
    endless = call("trigger-long-running-operation", {"duration": 4711, "steps": 13})
    with (
        pytest.raises(DeadlineExceeded, match="did not answer tools/call within 15 s"),
        drive(McpServer(SERVERS[name].command, deadline=15)) as rehearsal,
    ):
        rehearsal.run(when(PROMPT, [endless, say("Done.")]))
