"""llm: the command, which runs tools until the model stops calling them."""

import llm
from breaks import Break
from click.testing import CliRunner
from llm import cli
from llm.default_plugins import default_tools
from llm.models import Response

from offbook import call, say, when

FUNCTIONS = "def find_order(number: int) -> str:\n    return f'order {number}: one lamp'\n"


def ask(prompt):
    options = ["-m", "gpt-4o", "-s", "You find orders.", "-T", "llm_version"]
    ended = CliRunner().invoke(
        cli.cli, [*options, "--functions", FUNCTIONS, prompt], catch_exceptions=False
    )
    return ended.output.strip()


def test_the_command_runs_the_tools(offbook, monkeypatch, tmp_path):
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    run = offbook.drive(ask).run(
        when(
            "Find order 7",
            [[call("llm_version"), call("find_order", {"number": 7})], say("One lamp.")],
        )
    )
    assert [(tool.name, tool.result.text) for tool in run.executed] == [
        ("llm_version", llm.tools.llm_version()),
        ("find_order", "order 7: one lamp"),
    ]
    assert run.output == "One lamp."
    assert run.requests[0].system == "You find orders."


def llm_version() -> str:
    """Return a version that nobody installed."""
    return "99"


def run_the_first_call(self, **options):
    return execute_tool_calls(self, **options)[:1]


def swap_the_results(self, **options):
    first, second = execute_tool_calls(self, **options)
    first.output, second.output = second.output, first.output
    return [first, second]


execute_tool_calls = Response.execute_tool_calls
BREAKS = {
    "the version is invented": Break(
        lambda patch: patch.setattr(default_tools, "llm_version", llm_version),
        "('llm_version', '99') !=",
    ),
    "one result is dropped": Break(
        lambda patch: patch.setattr(Response, "execute_tool_calls", run_the_first_call),
        "tool_call_ids did not have response messages",
    ),
    "two results are swapped": Break(
        lambda patch: patch.setattr(Response, "execute_tool_calls", swap_the_results),
        "('llm_version', 'order 7: one lamp') !=",
    ),
    "the functions are not loaded": Break(
        lambda patch: patch.setattr(cli, "_tools_from_code", lambda _: []),
        "the agent does not offer 'find_order'",
    ),
}
