"""`offbook demo`: a scripted model plays a real session, once well and once badly."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from offbook import cli_options
from offbook.cli_options import print_json, use_colour
from offbook.errors import RunError, ScriptExhausted
from offbook.reports.json_report import count_events
from offbook.reports.terminal import TraceTree, print_lines
from offbook.runs.api import session
from offbook.runs.rehearsal import Rehearsal
from offbook.sources.playbook import call, say, think, when
from offbook.trace.reader import Trace

if TYPE_CHECKING:
    from offbook.exchange.messages import ToolResult
    from offbook.sources.playbook import Turn

EXTENSION = f"{__name__}.extension:extension"

WELCOME = """\
A scripted model plays a real agent. The extension, its tools, its hooks and the shell are real;
only the model is not: it does what the playbook says. This is what happened:
"""
CAPTURED = """
The order's id was made by the tool while the agent ran. The playbook caught it with .then(), and
the next call was given it by a function: nothing of it was known when the script was written.

And this is a run that fails. Its script forgets that the model has to answer at the end:
"""
DIAGNOSED = """
A test that runs this script fails with these words: the step, what was expected, what came, what
to do.
"""
NEXT = """
Go on:
  write a test     def test_mine(offbook): offbook.session(extensions=["mine.py"]).run(when(…))
  run it           pytest
  see its trace    offbook show TRACE
"""


@click.command("demo", epilog="\b\nExample:\n  offbook demo")
@cli_options.json_option
def command(*, as_json: bool) -> int:
    """See a rehearsal: one that passes, and one that fails."""
    with session(extensions=[EXTENSION], mock_ui={"confirm": True}) as passing:
        passing.run(*shopping())
        with session(extensions=[EXTENSION]) as failing:
            fail_run(failing)
            if as_json:
                runs = {"passing": passing, "failing": failing}
                print_json({name: count_events(Trace(run.trace)) for name, run in runs.items()})
            else:
                tell_story(passing, failing)
    return 0


def shopping() -> list[Turn]:
    """The script: the id that the first turn catches is used by the second."""
    caught: dict[str, str] = {}

    def catch(result: ToolResult) -> None:
        caught["id"] = result.text.partition(":")[0]

    return [
        when(
            "Order a kettle, and tidy up",
            [
                think("The order first."),
                call("place_order", {"item": "kettle"}).then(catch),
                call("bash", {"command": "rm -rf ./*"}),
                call("bash", {"command": "echo tidy > notes.txt && cat notes.txt"}),
                say("Ordered. I was not allowed to delete everything."),
            ],
        ),
        when(
            "Send it off",
            [call("ship_order", lambda: {"id": caught["id"]}), say("It is on its way.")],
        ),
    ]


def fail_run(rehearsal: Rehearsal) -> None:
    """Run a script that does not fit its agent."""
    try:
        rehearsal.run(when("Order a kettle", [call("place_order", {"item": "kettle"})]))
    except ScriptExhausted:
        return
    raise RunError("the demo's failing run did not fail")


def tell_story(passing: Rehearsal, failing: Rehearsal) -> None:
    """Print both traces as trees, with what there is to see in them."""
    click.echo(WELCOME)
    _show(passing)
    click.echo(CAPTURED)
    _show(failing)
    click.echo(DIAGNOSED + NEXT, nl=False)


def _show(rehearsal: Rehearsal) -> None:
    sys.stdout.flush()
    print_lines(TraceTree().render(Trace(rehearsal.trace)), sys.stdout, colour=use_colour())
