"""Each test has its own mocks; unused ones and swallowed refusals fail it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

DISABLED_PLUGINS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
SETTINGS = (
    "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    "filterwarnings = error\n"
)
HEADER = """
import asyncio
import pytest
from offbook.errors import UnmockedCall
from offbook.testing import (
    assert_no_host_calls, clear_host_mocks, host_call, host_calls, llm_call, mock_host_result,
)
NOW = {"capability": "clock", "operation": "now_ms", "result": 7}
"""
PASSING = {
    "the fixture of host mocks": """
def test_it(host_mocks):
    host_mocks.add(NOW)
    assert host_call("clock.now_ms") == 7
    assert len(host_mocks.calls) == 1
""",
    "host mocks in an async test": """
async def test_it(host_mocks):
    host_mocks.add(NOW)
    assert await asyncio.to_thread(host_call, "clock.now_ms") == 7
    assert len(host_calls()) == 1
""",
    "the fixture of LLM mocks": """
def test_it(llm_mocks):
    llm_mocks.add({"text": "hello"})
    assert llm_call("Hi").text == "hello"
""",
    "LLM mocks in an async test": """
async def test_it(llm_mocks):
    llm_mocks.add({"text": "hello"})
    assert llm_call("Hi").text == "hello"
""",
    "both": """
def test_it(mocks):
    mocks.host.add(NOW)
    mocks.llm.add({"text": "hello"})
    assert (host_call("clock.now_ms"), llm_call("Hi").text) == (7, "hello")
""",
    "no recording of steps reaches the next test": """
def test_first():
    from offbook.testing import step_assertions_begin
    step_assertions_begin()

def test_second():
    from offbook.errors import UsageError
    from offbook.testing import step_events
    with pytest.raises(UsageError):
        step_events()
""",
    "no mock reaches the next test": """
def test_first():
    mock_host_result("clock", "now_ms", 7)
    assert host_call("clock.now_ms") == 7

def test_second():
    assert_no_host_calls()
    with pytest.raises(UnmockedCall):
        host_call("clock.now_ms")
    clear_host_mocks()
""",
}
FAILING = {
    "an unused host mock": (
        "def test_it(host_mocks):\n    host_mocks.add(NOW)\n",
        "*never used: host mock clock.now_ms*",
    ),
    "an unused host mock without the fixture": (
        "def test_it():\n    mock_host_result('clock', 'now_ms', 7)\n",
        "*never used: host mock clock.now_ms*",
    ),
    "an unused host mock in an async test": (
        "async def test_it():\n    mock_host_result('clock', 'now_ms', 7)\n",
        "*never used: host mock clock.now_ms*",
    ),
    "an unused LLM mock": (
        "def test_it(llm_mocks):\n    llm_mocks.add({'text': 'hello'})\n",
        "*never used: LLM mock line 1*",
    ),
    "a refusal that is swallowed": (
        (
            "def test_it():\n    with pytest.raises(UnmockedCall):\n"
            "        host_call('clock.now_ms')\n"
        ),
        "*no mock for the host call clock.now_ms*",
    ),
}


@pytest.mark.parametrize("text", PASSING.values(), ids=PASSING)
def test_mocks_of_a_test_answer_it(pytester: pytest.Pytester, text: str):
    pytester.makeini(SETTINGS)
    pytester.makepyfile(HEADER + text)
    result = pytester.runpytest_inprocess(*DISABLED_PLUGINS)
    result.assert_outcomes(passed=text.count("def test_"))


@pytest.mark.parametrize("text, message", FAILING.values(), ids=FAILING)
def test_a_test_fails_for_its_mocks(pytester: pytest.Pytester, text: str, message: str):
    pytester.makeini(SETTINGS)
    pytester.makepyfile(HEADER + text)
    result = pytester.runpytest_inprocess(*DISABLED_PLUGINS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])
