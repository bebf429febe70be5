"""Host calls are answered by mocks, all of them are logged, and unmocked ones are refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.errors import CheckFailed, HostError, UnmockedCall, UsageError
from offbook.testing import (
    assert_host_call_count,
    assert_host_called,
    assert_no_host_calls,
    clear_host_mocks,
    host_call,
    host_call_count,
    host_call_count_for,
    host_calls,
    host_calls_for,
    host_was_called,
    mock_host_error,
    mock_host_response,
    mock_host_result,
    register_host_provider,
    with_host_mocks,
)


def read(path: str = "a.txt", **more: Any) -> Any:
    return host_call("workspace.read_text", {"path": path, **more})


def test_a_mock_answers_a_call():
    mock_host_result("workspace", "read_text", "contents")
    assert read() == "contents"
    assert_host_called("workspace", "read_text", {"path": "a.txt"})


def test_the_last_registered_mock_wins():
    mock_host_result("workspace", "read_text", "fallback")
    mock_host_result("workspace", "read_text", "specific", {"path": "a.txt"})
    assert [read("a.txt"), read("b.txt")] == ["specific", "fallback"]


def test_a_fallback_that_is_registered_later_always_wins():
    with with_host_mocks(allow_unused_mocks=True):
        mock_host_result("workspace", "read_text", "specific", {"path": "a.txt"})
        mock_host_result("workspace", "read_text", "fallback")
        assert read("a.txt") == "fallback"


MATCHES: dict[str, tuple[Any, Any, bool]] = {
    "no params": ({}, {"a": 1}, True),
    "a subset": ({"a": 1}, {"a": 1, "b": 2}, True),
    "a missing key": ({"a": None}, {}, False),
    "an int for a float": ({"a": 1}, {"a": 1.0}, True),
    "True for 1": ({"a": 1}, {"a": True}, False),
    "more keys below": ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
    "the same below": ({"a": {"b": [1]}}, {"a": {"b": [1]}, "c": 2}, True),
}


@pytest.mark.parametrize("params, called, matches", MATCHES.values(), ids=MATCHES)
def test_parameters_match_as_a_subset_at_the_top(params: Any, called: Any, matches: bool):  # noqa: FBT001 - a column
    with with_host_mocks(allow_unused_mocks=True):
        mock_host_result("clock", "now_ms", "other")
        mock_host_result("clock", "now_ms", "matched", params)
        assert (host_call("clock.now_ms", called) == "matched") is matches


def test_an_error_is_raised_and_the_call_is_logged():
    mock_host_error("workspace", "read_text", "denied")
    with pytest.raises(HostError, match="denied"):
        read()
    assert host_call_count() == 1


def test_an_error_takes_precedence_over_a_result():
    mock_host_response("workspace", "read_text", {"result": "x", "error": "denied"})
    with pytest.raises(HostError, match="denied"):
        read()


def test_an_exception_is_raised_as_it_is():
    error = TimeoutError("no disk")
    mock_host_error("workspace", "read_text", error)
    with pytest.raises(TimeoutError) as caught:
        read()
    assert caught.value is error


def test_a_function_gets_the_parameters():
    def shout(params: dict[str, str]) -> str:
        return params["path"].upper()

    mock_host_result("workspace", "read_text", shout)
    assert read("a.txt") == "A.TXT"


def test_results_are_used_one_after_the_other():
    mock_host_result("workspace", "read_text", "later")
    mock_host_response("workspace", "read_text", {"results": ["first", OSError("gone")]})
    assert read() == "first"
    with pytest.raises(OSError, match="gone"):
        read()
    assert read() == "later"


def test_a_mock_answers_as_often_as_its_limit_allows():
    mock_host_response("workspace", "read_text", {"result": "x", "times": 2})
    assert [read(), read()] == ["x", "x"]
    with pytest.raises(UnmockedCall, match=r"used up: workspace.read_text, 2 times"):
        read()
    clear_host_mocks()


def test_an_unmocked_call_is_refused_and_logged_with_the_nearest_mock():
    mock_host_result("workspace", "read_text", "x", {"path": "a.txt"})
    with pytest.raises(UnmockedCall) as caught:
        read("b.txt")
    assert 'no mock for the host call workspace.read_text({"path":"b.txt"})' in str(caught.value)
    assert 'nearest: workspace.read_text with {"path":"a.txt"}' in str(caught.value)
    assert '.path: expected "a.txt", got "b.txt"' in str(caught.value)
    assert [(str(c), c.outcome) for c in host_calls()] == [
        ('workspace.read_text({"path":"b.txt"})', "refused")
    ]
    clear_host_mocks()


def test_an_unmocked_process_does_not_run(tmp_path: Path):
    target = tmp_path / "made"
    with pytest.raises(UnmockedCall):
        host_call("process.exec", {"argv": ["touch", str(target)]})
    assert not target.exists()
    clear_host_mocks()


def test_a_refused_call_that_is_swallowed_fails_the_scope():
    def swallow() -> None:
        with pytest.raises(UnmockedCall):
            host_call("clock.now_ms")

    with pytest.raises(UnmockedCall, match=r"clock.now_ms\(\)"):
        with_host_mocks([], swallow)


def test_an_allowed_operation_reaches_the_real_provider():
    with with_host_mocks(allow=["clock.now_ms"]):
        assert host_call("clock.now_ms") > 1_600_000_000_000
        assert host_calls()[0].outcome == "real"


def test_the_answer_is_a_copy():
    mock_host_result("workspace", "list", ["a"])
    host_call("workspace.list").append("b")
    assert host_call("workspace.list") == ["a"]


def test_the_log_keeps_the_parameters_as_they_were():
    mock_host_result("workspace", "list", [])
    params = {"path": "a"}
    host_call("workspace.list", params)
    params["path"] = "b"
    assert host_calls_for("workspace", "list")[0].params == {"path": "a"}


def test_counts_are_of_the_operation():
    mock_host_result("clock", "now_ms", 1)
    mock_host_result("workspace", "exists", result=True)
    for _ in range(2):
        host_call("clock.now_ms")
    host_call("workspace.exists", {"path": "x"})
    assert host_call_count() == 3
    assert host_call_count_for("clock", "now_ms") == 2
    assert_host_call_count(2, "clock", "now_ms")
    assert not host_was_called("workspace", "exists", {"path": "y"})


FAILING: dict[str, tuple[Callable[[], None], str]] = {
    "called": (
        lambda: assert_host_called("clock", "now"),
        r"expected a host call clock.now\nhost calls:\n  clock.now_ms\(\): mocked",
    ),
    "params": (lambda: assert_host_called("clock", "now_ms", {"a": 1}), 'with {"a":1}'),
    "count": (
        lambda: assert_host_call_count(2, "clock", "now_ms"),
        "expected 2 host calls of clock.now_ms, got 1",
    ),
    "none": (assert_no_host_calls, "expected no host calls, got 1"),
    "message": (lambda: assert_no_host_calls("quiet please"), "quiet please"),
}


@pytest.mark.parametrize("check, message", FAILING.values(), ids=FAILING)
def test_a_failed_assertion_shows_the_calls(check: Callable[[], None], message: str):
    mock_host_result("clock", "now_ms", 1)
    host_call("clock.now_ms")
    with pytest.raises(CheckFailed, match=message):
        check()


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "an unknown capability": (
        lambda: mock_host_result("workspcae", "read_text", ""),
        (
            "mock_host_result: no provider knows the host capability 'workspcae'\ndid you mean"
            " 'workspace'"
        ),
    ),
    "a capability without a provider": (
        lambda: mock_host_result("ws", "members", []),
        "register_host_provider('ws', {'members': lambda **params: None})",
    ),
    "an unknown operation": (
        lambda: mock_host_result("workspace", "raed_text", ""),
        "no operation 'raed_text'\ndid you mean 'read_text'",
    ),
    "an unknown key": (
        lambda: mock_host_response("clock", "now", {"reslut": 1}),
        "unknown key 'reslut'\ndid you mean 'result'",
    ),
    "params that are no dict": (
        lambda: mock_host_result("clock", "now", 1, [1]),  # pyright: ignore[reportArgumentType] - wrong on purpose
        "params: expected a mapping",
    ),
    "results that are no list": (
        lambda: mock_host_response("clock", "now", {"results": "ab"}),
        "host mock.results: expected a list",
    ),
    "results and a result": (
        lambda: mock_host_response("clock", "now", {"results": [1], "result": 1}),
        "`results` cannot be combined",
    ),
    "times": (
        lambda: mock_host_response("clock", "now", {"times": 0}),
        "times: expected an integer >= 1",
    ),
    "a name without a dot": (lambda: host_call("clock"), "invalid host call 'clock'"),
    "an assertion on an unknown operation": (
        lambda: assert_host_called("clock", "nwo"),
        "did you mean 'now'",
    ),
    "an unknown operation to allow": (
        lambda: with_host_mocks([], lambda: None, allow=["clok"]),
        "did you mean 'clock'",
    ),
    "an entry that is no dict": (
        lambda: with_host_mocks(["x"], lambda: None),  # pyright: ignore[reportArgumentType] - wrong on purpose
        "with_host_mocks, mock 1: host mock: expected a mapping, got a text",
    ),
    "an entry without an operation": (
        lambda: with_host_mocks([{"capability": "clock"}], lambda: None),
        "missing key 'operation'",
    ),
    "a provider without operations": (
        lambda: register_host_provider("empty", object()),
        "has no operation",
    ),
}


@pytest.mark.parametrize("wrong, message", BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_the_nearest_word(wrong: Callable[[], object], message: str):
    with pytest.raises(UsageError) as caught:
        wrong()
    assert message in str(caught.value)


OUTSIDE = """
from offbook.testing import assert_no_host_calls, clear_host_mocks, host_call, mock_host_result
assert host_call("clock.now_ms") > 1_600_000_000_000       # outside of a test: the real provider
try:
    assert_no_host_calls()
except Exception as error:
    print(error)
clear_host_mocks()
mock_host_result("clock", "now_ms", 7)
print(host_call("clock.now_ms"))
"""


def test_without_a_test_the_provider_answers_and_nothing_is_asserted(unwatched: dict[str, str]):
    env = {name: value for name, value in unwatched.items() if name != "PYTEST_CURRENT_TEST"}
    output = subprocess.run(
        [sys.executable, "-c", OUTSIDE], capture_output=True, text=True, env=env, check=True
    ).stdout
    assert output.startswith("host calls are not recorded here")
    assert output.endswith("\n7\n")


# --- In a session


def read_file(params: dict[str, Any], ctx: Any) -> str:
    return ctx.host.call("workspace.read_text", {"path": params["path"]})


def extension(api: Any) -> None:
    api.tool("read_file", "Read a file.", {"type": "object"})(read_file)


CALL = when("Read", [call("read_file", {"path": "a.txt"}), say("Done.")])
MOCK = {"capability": "workspace", "operation": "read_text", "result": "mocked"}


def test_a_session_has_its_own_host_mocks_and_the_call_is_in_the_trace():
    with session(extensions=[extension], mock_host=[MOCK]) as rehearsal:
        run = rehearsal.run(CALL)
        assert run.results("read_file")[0].text == "mocked"
        [event] = run.events.named("host.call")
    assert event.data == {
        "capability": "workspace",
        "operation": "read_text",
        "params": {"path": "a.txt"},
        "outcome": "mocked",
        "result": "mocked",
    }


def test_a_session_uses_the_mocks_of_the_scope_around_it():
    with session(extensions=[extension]) as rehearsal, with_host_mocks([MOCK]):
        assert rehearsal.run(CALL).results("read_file")[0].text == "mocked"
        assert_host_called("workspace", "read_text", {"path": "a.txt"})


def test_a_session_refuses_an_unmocked_host_call():
    with pytest.raises(UnmockedCall), session(extensions=[extension]) as rehearsal:
        rehearsal.run(CALL)
    clear_host_mocks()


def test_a_session_fails_for_an_unused_host_mock():
    def run() -> None:
        with session(mock_host=[MOCK]) as rehearsal:
            rehearsal.run(when("Hi", [say("Hello.")]))

    with pytest.raises(CheckFailed, match=r"never used: mock_host workspace.read_text"):
        run()


def test_a_refusal_that_an_extension_swallows_fails_the_run():
    def swallow(_params: object, ctx: Any) -> str:
        try:
            return ctx.host.call("clock.now")
        except UnmockedCall:
            return "no time"

    def swallowing(api: Any) -> None:
        api.tool("swallow", "Ask the time.", {"type": "object"})(swallow)

    script = when("Go", [call("swallow"), say("Done.")])
    with (
        pytest.raises(UnmockedCall, match=r"clock.now"),
        session(extensions=[swallowing], mock_host=[]) as rehearsal,
    ):
        rehearsal.run(script)
