"""Every function of Harn's testing module exists in `offbook.testing`, with the same meaning."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from offbook import testing as t
from offbook.errors import CheckFailed, HostError, RequirementFailed, UnmockedCall, UsageError
from tests.conftest import SHARED_DATA

SEED = SHARED_DATA.parent / "seeds" / "002_45749e7f458ec3b6.txt"
READ = ("workspace", "read_text")
RUN = {"handoffs": [{"kind": "review", "target_persona_or_human": {"label": "ops"}}]}


@pytest.fixture(autouse=True)
def code_under_test() -> Iterator[None]:
    """One mocked host call, and one step of a persona."""

    @t.persona("merge_captain")
    class Captain:
        @t.step
        def intake(self, number: int) -> str:
            return f"request {number}"

    t.clear_host_mocks()
    t.mock_host_result(*READ, "file contents")
    t.host_call("workspace.read_text", {"path": "a.txt"})
    t.step_assertions_begin("merge_*")
    Captain().intake(42)
    yield
    t.clear_host_mocks()


def read() -> Any:
    return t.host_call("workspace.read_text", {"path": "a.txt"})


# the function -> what must hold in the situation above
HOLDS: dict[str, Callable[[], object]] = {
    "host_call": lambda: read() == "file contents",
    "host_calls": lambda: (
        [str(c) for c in t.host_calls()] == ['workspace.read_text({"path":"a.txt"})']
    ),
    "host_calls_for": lambda: (
        (len(t.host_calls_for(*READ)), t.host_calls_for("clock", "now")) == (1, [])
    ),
    "host_call_count": lambda: t.host_call_count() == 1,
    "host_call_count_for": lambda: (
        (t.host_call_count_for(*READ), read(), t.host_call_count_for(*READ))
        == (1, "file contents", 2)
    ),
    "mock_host_result": lambda: (
        (t.mock_host_result(*READ, "b", {"path": "a.txt"}), read())[1] == "b"
    ),
    "mock_host_response": lambda: (
        (
            t.mock_host_response(*READ, {"result": "c", "params": {"path": "a.txt"}}),
            read(),
        )[1]
        == "c"
    ),
    "step_events": lambda: [r["event"] for r in t.step_events()] == ["step.pre", "step.post"],
    "step_events_clear": lambda: (t.step_events_clear(), t.step_events())[1] == [],
    "step_assertions_begin": lambda: (t.step_assertions_begin("other_*"), t.step_events())[1] == [],
    "step_assertions_end": lambda: (t.step_assertions_end(), len(t.step_events()))[1] == 2,
    "with_host_mocks": lambda: (
        t.with_host_mocks(
            [{"capability": "clock", "operation": "now_ms", "result": 7}],
            lambda: (t.host_call("clock.now_ms"), t.host_call_count()),
        )
        == (7, 1)
    ),
    "with_llm_mocks": lambda: (
        t.with_llm_mocks(
            [{"match": "*answer*", "text": "42"}], lambda: t.llm_call("the answer?").text
        )
        == "42"
    ),
    "with_mocks": lambda: (
        t.with_mocks(
            {
                "host_mocks": [{"capability": "clock", "operation": "now_ms", "result": 7}],
                "llm_mocks": [{"text": "agreed"}],
            },
            lambda: (t.host_call("clock.now_ms"), t.llm_call("?").text, t.llm_call_count()),
        )
        == (7, "agreed", 1)
    ),
    "llm_mock": lambda: (
        t.with_llm_mocks([], lambda: (t.llm_mock({"text": "a"}), t.llm_call("?").text)[1]) == "a"
    ),
    "llm_call": lambda: t.with_llm_mocks([{"text": "a"}], lambda: t.llm_call("?").text) == "a",
    "llm_calls": lambda: (
        t.with_llm_mocks(
            [{"text": "a"}], lambda: (t.llm_call("why?"), [r.prompt for r in t.llm_calls()])[1]
        )
        == ["why?"]
    ),
    "llm_call_count": lambda: (
        t.with_llm_mocks(
            [{"text": "a"}], lambda: (t.llm_call_count(), t.llm_call("?"), t.llm_call_count())[::2]
        )
        == (0, 1)
    ),
}

# the function -> a call that fails, and its error
RAISES: dict[str, tuple[Callable[[], object], type[Exception]]] = {
    "clear_host_mocks": (lambda: (t.clear_host_mocks(), read()), UnmockedCall),
    "mock_host_error": (lambda: (t.mock_host_error(*READ, "denied"), read()), HostError),
    "require": (lambda: t.require(False, "no"), RequirementFailed),
}

# an assertion -> a call that passes, and one that fails
ASSERTS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "assert_host_called": (
        lambda: t.assert_host_called(*READ, {"path": "a.txt"}),
        lambda: t.assert_host_called(*READ, {"path": "b.txt"}),
    ),
    "assert_host_call_count": (
        lambda: t.assert_host_call_count(1, *READ),
        lambda: t.assert_host_call_count(2, *READ),
    ),
    "assert_no_host_calls": (
        lambda: (t.clear_host_mocks(), t.assert_no_host_calls()),
        t.assert_no_host_calls,
    ),
    "assert_steps_ran": (
        lambda: t.assert_steps_ran(["intake"]),
        lambda: t.assert_steps_ran(["intake", "intake"]),
    ),
    "assert_step_received": (
        lambda: t.assert_step_received("intake", {"args": [42]}),
        lambda: t.assert_step_received("intake", {"args": [43]}),
    ),
    "assert_step_emitted": (
        lambda: t.assert_step_emitted("intake", lambda record: record["output"] == "request 42"),
        lambda: t.assert_step_emitted("intake", lambda record: record["output"] == "request 43"),
    ),
    "assert_handoff_emitted": (
        lambda: t.assert_handoff_emitted(RUN, "review", "ops"),
        lambda: t.assert_handoff_emitted(RUN, "merge"),
    ),
    "assert_receipt_field": (
        lambda: t.assert_receipt_field({"a/b": [None]}, "/a~1b/0", None),
        lambda: t.assert_receipt_field({"a/b": []}, "/a~1b/0", None),
    ),
    "assert_golden_transcript": (
        lambda: t.assert_golden_transcript({"took": "<ms>"}, {"took": 12, "more": 1}),
        lambda: t.assert_golden_transcript({"took": "<ms>"}, {"took": True}),
    ),
    "assert_eq": (lambda: t.assert_eq(3, 3), lambda: t.assert_eq(3, 4)),
    "assert_ne": (lambda: t.assert_ne(3, 4), lambda: t.assert_ne(3, 3)),
}

# What the text calls that is Python's own, an example, or the older spelling of `clear_host_mocks`
# and of an entry of `with_host_mocks`.
OTHER = {
    *("assert", "body", "cfg", "default", "host_mock", "host_mock_clear", "join", "len", "log"),
    *("my_feature", "run_pipeline_under_test", "skill_registry_from_host", "test_skill_registry"),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_function_returns_what_the_table_of_harn_says(name: str):
    assert HOLDS[name]()


@pytest.mark.parametrize("name", RAISES)
def test_a_function_makes_a_call_fail(name: str):
    call, error = RAISES[name]
    with pytest.raises(error):
        call()
    t.clear_host_mocks()  # otherwise a refused call fails the test again


@pytest.mark.parametrize("name", ASSERTS)
def test_an_assertion_passes_and_fails(name: str):
    passes, fails = ASSERTS[name]
    passes()
    t.clear_host_mocks()
    t.mock_host_result(*READ, "")
    read()
    with pytest.raises(CheckFailed):
        fails()


def test_every_function_of_the_tables_is_public():
    names = {*HOLDS, *RAISES, *ASSERTS}
    assert names <= set(dir(t))


@pytest.mark.external
@pytest.mark.skipif(not SEED.is_file(), reason="the text of the testing module is not here")
def test_every_function_that_the_text_names_is_tested():
    text = SEED.read_text(encoding="utf-8")
    end, last = text.index("\nEval kinds"), text.index("Built-in assertions")
    called = set(re.findall(r"\b([a-z]+(?:_[a-z]+)*)\(", text[:end] + text[last:]))
    named = {*called, "require"} - OTHER
    assert len(named) > 25
    assert named == {*HOLDS, *RAISES, *ASSERTS}


SCOPES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "runtime.pipeline_input": ("runtime", "pipeline_input", {}),
    "project.skills": ("project", "skills", {}),
    "project.metadata_set": ("project", "metadata_set", {"key": "a", "value": 1}),
    "ws.read": ("ws", "read", {"path": "a.txt"}),
}


@pytest.mark.parametrize("name", SCOPES)
def test_the_examples_of_scoped_mocks_work_after_the_suggested_line(name: str):
    capability, operation, params = SCOPES[name]
    mocks = [{"capability": capability, "operation": operation, "result": [1], "params": params}]

    def call_host() -> Any:
        return t.host_call(name, params)

    with pytest.raises(UsageError) as refused:
        t.with_host_mocks(mocks, call_host)
    line = str(refused.value).rpartition("a new one: ")[2]
    names = {"register_host_provider": t.register_host_provider}
    undo: Any = eval(line, names)  # noqa: S307 - our own message
    try:
        assert t.with_host_mocks(mocks, call_host) == [1]
    finally:
        undo()
