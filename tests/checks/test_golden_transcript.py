"""A golden transcript matches by subset and sentinel, and is written only on request."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook import say, session, when
from offbook.checks import (
    Review,
    check_sentinels,
    find_golden_mismatches,
    list_proposed,
    mask_volatile,
    merge_golden,
    update_goldens,
)
from offbook.determinism import use_variable
from offbook.errors import CheckFailed, FormatError, UsageError
from offbook.testing import assert_golden_transcript
from tests.conftest import SHARED_DATA

CASES = SHARED_DATA / "harn" / "derived" / "golden_transcript" / "cases.json"


@pytest.mark.external
def test_every_case_of_harn_has_its_result():
    cases = json.loads(CASES.read_text())["cases"]
    assert len(cases) == 27
    wrong = [case for case in cases if (not find_golden_mismatches(*case[:2])) is not case[2]]
    assert wrong == []


MATCHING: list[tuple[Any, Any]] = [
    ("<int>", 7),
    ("<iso8601>", "2026-01-02T03:04:05Z"),
    ("<iso8601>", "2026-01-02 03:04:05.678+01:00"),
    ("<path>", "src/app.py"),
    ("<path>", "C:\\temp"),
    ("<re:call_[0-9]+>", "call_7"),
    ("<re:a|b>", "b"),
    ("\\<any>", "<any>"),
    ({"a": {"b": "<any>"}}, {"a": {"b": 0, "c": 1}, "d": 2}),
]
DIFFERING: list[tuple[Any, Any, str]] = [
    ("<int>", 7.0, '$: expected "<int>", got 7.0'),
    ("<int>", True, "got true"),
    ("<ms>", True, "got true"),
    ("<iso8601>", "2026-13-02T03:04:05Z", "$"),
    ("<iso8601>", "today", "$"),
    ("<path>", "a", "$"),
    ("<re:call_[0-9]+>", "call_7x", "$"),
    ("\\<any>", "x", "$"),
    ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "$.a[0].b: expected 1, got 2"),
    ([1], [1, 2], "$: expected 1 items, got 2"),
    ({"a": 1}, [], "$"),
]


@pytest.mark.parametrize("golden, actual", MATCHING)
def test_a_golden_matches(golden: Any, actual: Any):
    assert_golden_transcript(golden, actual)


@pytest.mark.parametrize("golden, actual, message", DIFFERING)
def test_a_mismatch_names_the_path_and_both_values(golden: Any, actual: Any, message: str):
    with pytest.raises(CheckFailed) as caught:
        assert_golden_transcript(golden, actual)
    assert message in str(caught.value)


def test_a_failure_has_every_place_and_a_diff():
    golden = {"id": "<uuid>", "steps": [{"name": "plan"}, {"name": "build"}]}
    actual = {
        "id": "0190d2f0-7c1e-7abc-8def-0123456789ab",
        "steps": [{"name": "plan"}, {"name": "test"}],
        "more": 1,
    }
    with pytest.raises(CheckFailed) as caught:
        assert_golden_transcript(golden, actual)
    assert str(caught.value).splitlines() == [
        'golden transcript mismatch at $.steps[1].name: expected "build", got "test"',
        "- expected, + actual",
        '       "name": "plan"',
        "     },",
        "     {",
        '-      "name": "build"',
        '+      "name": "test"',
        "     }",
        "   ]",
        " }",
    ]


BAD: dict[str, tuple[Any, str]] = {
    "a misspelled sentinel": (
        {"runs": [{"id": "<uid>"}]},
        "$.runs[0].id: unknown sentinel '<uid>'\ndid you mean '<uuid>'",
    ),
    "a tag": ("<div>", "For the text itself write '\\<div>'"),
    "a sentinel with an argument": ("<ms:3>", "unknown sentinel '<ms:3>'"),
    "a pattern that is none": ("<re:(>", "invalid pattern"),
    "no pattern": ("<re:>", "has no pattern"),
}


@pytest.mark.parametrize("golden, message", BAD.values(), ids=BAD)
def test_an_unknown_sentinel_is_refused_before_anything_is_compared(golden: Any, message: str):
    with pytest.raises(UsageError) as caught:
        assert_golden_transcript(golden, "something else")
    assert message in str(caught.value)


def test_a_golden_that_every_transcript_matches_is_refused(tmp_path: Path):
    path = tmp_path / "golden.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"the golden \{\} matches every transcript"):
        assert_golden_transcript({}, {"id": 7})
    with pytest.raises(UsageError, match=r"golden\.json: the golden \{\} matches every transcript"):
        assert_golden_transcript(path, {"id": 7})


def test_the_events_of_a_run_are_a_transcript():
    with session() as rehearsal:
        run = rehearsal.run(when("Hi", [say("Hello.")]))
        names = ["agent.start", "model.request", "model.reply", "agent.end"]
        expected = [{"event": name, "ts": "<ms>"} for name in names]
        assert_golden_transcript(expected, run.events.named(*names))


# --- Files


def updating(path: Path, actual: Any) -> None:
    with use_variable(update_goldens, value=True):
        assert_golden_transcript(path, actual)


@pytest.mark.parametrize("name", ["golden.json", "golden.jsonl", "golden.yaml"])
def test_a_golden_is_written_with_sentinels_and_then_matches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CI", raising=False)
    path = tmp_path / name
    first = [{"id": "0190d2f0-7c1e-7abc-8def-0123456789ab", "took_ms": 5, "text": "<any>"}]
    updating(path, first)
    assert "<uuid>" in path.read_text()
    again = [{"id": "0190d2f0-7c1e-7abc-8def-000000000000", "took_ms": 9, "text": "<any>"}]
    assert_golden_transcript(path, again)
    with pytest.raises(CheckFailed, match=r"\$\[0\]\.text"):
        assert_golden_transcript(path, [{**again[0], "text": "other"}])


def test_a_text_with_a_separator_of_lines_does_not_end_a_line_of_a_golden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CI", raising=False)
    actual = [{"text": "a\u2028b\x85c"}]
    updating(tmp_path / "golden.jsonl", actual)
    assert_golden_transcript(tmp_path / "golden.jsonl", actual)


def test_an_update_keeps_the_sentinels_that_match_and_the_keys_of_the_golden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CI", raising=False)
    path = tmp_path / "golden.json"
    path.write_text('{"a": "<any>", "b": [1, "<int>"], "gone": 1}')
    updating(path, {"a": 5, "b": [2, 7, "x"], "new": 1})
    assert json.loads(path.read_text()) == {"a": "<any>", "b": [2, "<int>", "x"]}


def test_a_missing_golden_fails_with_the_command_that_writes_it(tmp_path: Path):
    with pytest.raises(CheckFailed, match="pytest --offbook-update") as caught:
        assert_golden_transcript(tmp_path / "golden.json", {})
    assert "there is no golden transcript yet" in str(caught.value)
    assert not (tmp_path / "golden.json").exists()


def test_a_golden_is_not_written_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(UsageError, match="not updated in CI"):
        updating(tmp_path / "golden.json", {"a": 1})
    assert not (tmp_path / "golden.json").exists()


def test_a_golden_of_another_type_is_refused(tmp_path: Path):
    path = tmp_path / "golden.txt"
    path.write_text("x")
    with pytest.raises(FormatError, match=r"unsupported file type '\.txt'"):
        assert_golden_transcript(path, {})


def test_a_relative_path_is_next_to_the_test(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")  # no proposal is written into the folder of the tests
    with pytest.raises(CheckFailed) as caught:
        assert_golden_transcript(Path("no_such_golden.json"), {})
    assert str(Path(__file__).with_name("no_such_golden.json")) in str(caught.value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["a", "<any>", "\\<x>", "<p>"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "z_ms"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_values)
def test_a_written_golden_is_valid_and_matches_its_transcript(value: Any):
    golden = mask_volatile(value)
    check_sentinels(golden)
    assert find_golden_mismatches(golden, value) == []


@given(json_values, json_values)
def test_an_updated_golden_matches(old: Any, value: Any):
    golden = merge_golden(mask_volatile(old), value)
    assert find_golden_mismatches(golden, value) == []


KEY = "sk-proj-" + "aB3dE5fG7hJ9kL1mN3pQ"
LOGIN = {"step": "login", "api_key": KEY, "note": f"with {KEY}"}


def accept_proposal(path: Path, actual: Any) -> None:
    with pytest.raises(CheckFailed, match="no golden transcript yet"):
        assert_golden_transcript(path, actual)
    Review(list_proposed(path.parent)).decide(accept=["all"])


@pytest.mark.parametrize("name", ["golden.json", "golden.jsonl", "golden.yaml"])
@pytest.mark.parametrize("write", [updating, accept_proposal])
def test_a_golden_file_has_no_secret_and_matches(
    name: str, write: Callable[[Path, Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CI", raising=False)
    path = tmp_path / name
    write(path, [LOGIN])
    assert KEY not in path.read_text()
    assert_golden_transcript(path, [LOGIN])


GOLDENS_OF_SECRETS: list[tuple[dict[str, Any], str]] = [
    ({"api_key": "[API_KEY]"}, ""),
    ({"api_key": KEY}, ""),  # earlier versions wrote it
    ({"api_key": "<any>"}, ""),
    ({"api_key": "<re:sk-proj-\\w+>", "note": "with [API_KEY]"}, ""),
    ({"api_key": "<re:key-[0-9]+>"}, "$.api_key: expected"),
    ({"api_key": "[API_KEY]", "step": "logout"}, '$.step: expected "logout", got "login"'),
    ({"step": "[API_KEY]"}, '$.step: expected "[API_KEY]", got "login"'),
]


@pytest.mark.parametrize("golden, message", GOLDENS_OF_SECRETS, ids=str)
def test_a_secret_is_compared_as_the_file_has_it(
    golden: dict[str, Any], message: str, tmp_path: Path
):
    path = tmp_path / "golden.json"
    path.write_text(json.dumps(golden))
    if not message:
        assert_golden_transcript(path, LOGIN)
        return
    with pytest.raises(CheckFailed, match=re.escape(f"mismatch at {message}")):
        assert_golden_transcript(path, LOGIN)


@pytest.mark.parametrize("pattern", [".*", "(?s).*", "[\\s\\S]*", "|.*"])
def test_a_pattern_that_matches_every_text_is_refused(pattern: str):
    with pytest.raises(UsageError, match="is found in every text"):
        assert_golden_transcript({"a": f"<re:{pattern}>"}, {"a": "x"})


@pytest.mark.parametrize("pattern, text", [("[0-9]*", "7"), (".+", "x"), ("x?", "")])
def test_a_pattern_of_the_whole_text_may_match_an_empty_one(pattern: str, text: str):
    assert_golden_transcript({"a": f"<re:{pattern}>"}, {"a": text})
