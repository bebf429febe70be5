"""A pytest plugin: every test runs with the published agent, and once for each break of it.

A test file has the tests of one agent, as a user would write them, and its `BREAKS`. A break
changes the imported agent before the test starts. The test must fail, with a message that says
what the agent did: `tests/matrix/test_published.py` reads it in the report.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from offbook.runs import Wiring
from pytest_offbook import rehearsals

if TYPE_CHECKING:
    from collections.abc import Callable

UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Break:
    """A change that breaks an agent, and a part of the message with which its test fails."""

    apply: Callable[[pytest.MonkeyPatch], None]
    message: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that switches the isolation off, to see that the proxy notices."""
    parser.addoption("--no-isolation", action="store_true", help="let the agents connect")


def pytest_configure(config: pytest.Config) -> None:
    """Switch the isolation off, if that is asked for."""
    if config.getoption("--no-isolation"):
        Wiring.guard = rehearsals.isolate_test = lambda _: nullcontext()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test unchanged, and with each break."""
    metafunc.parametrize("variant", [UNCHANGED, *metafunc.module.BREAKS], indirect=True)


@pytest.fixture(autouse=True)
def variant(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> str:
    """Break the agent, unless it is tested as it was published."""
    name: str = request.param
    if name != UNCHANGED:
        fault: Break = request.module.BREAKS[name]
        record_property("message", fault.message)
        fault.apply(monkeypatch)
    return name


# ------------------------------------------------------------------------- agents of pydantic-ai


def drop_tool(agent: Any, name: str) -> Break:
    """Remove a tool of the agent."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(_find_tools(agent), name)

    return Break(apply, f"the agent does not offer {name!r}")


def replace_tool(agent: Any, name: str, function: Callable[..., Any], message: str) -> Break:
    """Replace the function of a tool by another with the same parameters."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_find_tools(agent)[name].function_schema, "function", function)

    return Break(apply, message)


def edit_instructions(agent: Any, old: str, new: str, message: str) -> Break:
    """Change a part of the agent's instructions."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        edited = [_replace(item, old, new) for item in agent._instructions]
        assert edited != agent._instructions, f"no instruction has {old!r}"
        monkeypatch.setattr(agent, "_instructions", edited)

    return Break(apply, message)


def _find_tools(agent: Any) -> dict[str, Any]:
    return next(toolset.tools for toolset in agent.toolsets if getattr(toolset, "tools", None))


def _replace(sourced: Any, old: str, new: str) -> Any:
    text = sourced.instruction
    changed = text.replace(old, new) if isinstance(text, str) else text
    return dataclasses.replace(sourced, instruction=changed)
