"""A verdict names its assertion, and has the expected and the actual side for a program."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import (
    ActualCall,
    Assertion,
    AssertionResult,
    CheckContext,
    ExpectedCall,
    NoData,
    Termination,
    assertion,
    compare_tool_calls,
    evaluate_all,
    parse_assertion,
)
from offbook.errors import UsageError
from offbook.trace import (
    LOOP_START,
    RUN_END,
    RUN_START,
    VERDICT,
    AlignedRow,
    Event,
    Mismatch,
    Trace,
    Verdict,
    align_equal,
    align_in_order,
    contains,
    describe_mismatch,
    record_trace,
    render_rows,
    render_value,
    shorten_sides,
    text_matches,
    values_equal,
)
from tests.checks.test_assertions import RUN, WORK, iteration, make, publish

CALLS = ['find({"id":7})', 'find({"id":7})', 'save({"path":"/"})']  # `rm` was blocked
PUBLISHED = {"task.start": 1, "build.task": 1, "build.done": 1}


def judge(kind: str, fields: dict[str, Any], root: Path | None = None) -> Verdict:
    [verdict] = evaluate_all([{"type": kind, **fields}], CheckContext(RUN, root, root))
    return verdict


@pytest.mark.parametrize(
    "kind, fields, title, expected, actual, context",
    [
        ("exit_code", {"expected": 1}, "exit_code", 1, 0, {}),
        (
            "termination_reason",
            {"expected": "completed"},
            "termination_reason",
            "CompletionPromise",
            "CompletionPromise",
            {},
        ),
        ("iterations", {"min": 3}, "iterations", {"min": 3}, 2, {}),
        ("duration", {"max_secs": 2}, "duration", {"max_secs": 2.0}, 1.5, {}),
        ("cost_within", {"max_dollars": 1}, "cost_within", {"max_dollars": 1.0}, 0.1, {}),
        (
            "event_occurred",
            {"topic": "build.task", "payload_pattern": "auth"},
            "event_occurred build.task auth",
            "auth",
            ['{"goal":"auth"}'],
            {"topic": "build.task"},
        ),
        (
            "event_occurred",
            {"topic": "build.task"},
            "event_occurred build.task",
            "build.task",
            1,
            {},
        ),
        (
            "event_sequence",
            {"topics": ["task.start"]},
            "event_sequence ['task.start']",
            ["task.start"],
            [*PUBLISHED],
            {},
        ),
        (
            "event_count",
            {"topic": "build.*", "max": 1},
            "event_count build.*",
            {"max": 1},
            2,
            {"topic": "build.*", "published": PUBLISHED},
        ),
        ("no_event", {"topic": "x"}, "no_event x", "no x", [], {}),
        (
            "hat_transition",
            {"from": "planner", "to": "builder"},
            "hat_transition planner builder",
            "planner -> builder",
            ["planner -> builder"],
            {"transitions": ["planner -> builder"]},
        ),
        (
            "hat_sequence",
            {"hats": ["planner", "builder"]},
            "hat_sequence ['planner', 'builder']",
            ["planner", "builder"],
            ["planner", "builder"],
            {},
        ),
        (
            "iteration_count",
            {"hat": "planner", "exact": 1},
            "iteration_count planner",
            {"exact": 1},
            1,
            {"hats": {"planner": 1, "builder": 1}},
        ),
        (
            "stdout_contains",
            {"pattern": "Succ"},
            "stdout_contains Succ",
            "Succ",
            "Successfully completed\n",
            {},
        ),
        ("stderr_contains", {"pattern": "w"}, "stderr_contains w", "w", "a warning\n", {}),
        (
            "tool_sequence",
            {"tools": ["find"], "mode": "superset"},
            "tool_sequence superset",
            ["find"],
            CALLS,
            {"missing": [], "extra": CALLS[1:], "not run": ['rm({"path":"/"})']},
        ),
        (
            "tool_called",
            {"tool": "find", "max": 3},
            "tool_called find",
            {"min": 1, "max": 3, "call": "find"},
            2,
            {"calls": CALLS[:2]},
        ),
        ("tool_never", {"tool": "write"}, "tool_never write", "no write", [], {}),
        (
            "tool_before",
            {"first": "find", "then": "save"},
            "tool_before find save",
            "find before save",
            ["find", "find", "save"],
            {},
        ),
        (
            "tool_status",
            {"tool": "find", "status": "ok"},
            "tool_status find ok",
            "ok",
            ["failed", "ok", "retried"],
            {},
        ),
    ],
)
def test_a_verdict_has_a_title_and_both_sides(
    kind: str, fields: dict[str, Any], title: str, expected: Any, actual: Any, context: Any
):
    verdict = judge(kind, fields)
    assert (verdict.check, verdict.expected, verdict.actual) == (title, expected, actual)
    assert verdict.context == context


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("def main(): ...\n")
    (tmp_path / "raw.bin").write_bytes(b"\xff\xfe\x00")
    return tmp_path


@pytest.mark.parametrize(
    "kind, fields, title, expected, actual, context",
    [
        (
            "file_exists",
            {"path": "src/other.py"},
            "file_exists src/other.py",
            "src/other.py",
            "missing",
            {"path": "src/other.py", "there": ["main.py"]},
        ),
        (
            "file_exists",
            {"path": "src"},
            "file_exists src",
            "src",
            "a folder",
            {"path": "src", "there": ["raw.bin", "src"]},
        ),
        (
            "file_exists",
            {"path": "no/where"},
            "file_exists no/where",
            "no/where",
            "missing",
            {"path": "no/where", "there": []},
        ),
        (
            "file_contains",
            {"path": "src/main.py", "pattern": "def"},
            "file_contains src/main.py def",
            "def",
            "def main(): ...\n",
            {"path": "src/main.py"},
        ),
        (
            "file_contains",
            {"path": "gone.py", "pattern": "def"},
            "file_contains gone.py def",
            "gone.py",
            None,
            {"path": "gone.py", "there": ["raw.bin", "src"]},
        ),
        (
            "file_not_contains",
            {"path": "src/main.py", "pattern": "TODO"},
            "file_not_contains src/main.py TODO",
            "no TODO",
            "",
            {"path": "src/main.py"},
        ),
    ],
)
def test_a_verdict_about_a_file_names_it_and_its_neighbours(
    folder: Path,
    kind: str,
    fields: dict[str, Any],
    title: str,
    expected: Any,
    actual: Any,
    context: Any,
):
    verdict = judge(kind, fields, folder)
    assert (verdict.check, verdict.expected, verdict.actual) == (title, expected, actual)
    assert verdict.context == context


@pytest.mark.parametrize(
    "path, message",
    [
        ("src", "src is a folder"),
        ("raw.bin", "raw.bin is not UTF-8 text"),
        ("gone.py", "gone.py is missing"),
    ],
)
@pytest.mark.parametrize("kind", ["file_contains", "file_not_contains"])
def test_a_file_that_cannot_be_searched_fails_with_the_reason(
    folder: Path, kind: str, path: str, message: str
):
    verdict = judge(kind, {"path": path, "pattern": "x"}, folder)
    assert (verdict.status, verdict.message) == ("fail", message)


@pytest.mark.parametrize("kind", ["file_contains", "file_not_contains"])
def test_a_pipe_is_never_read_and_fails(folder: Path, kind: str):
    os.mkfifo(folder / "pipe")
    verdict = judge(kind, {"path": "pipe", "pattern": "x"}, folder)
    assert (verdict.status, verdict.message) == ("fail", "pipe is not a regular file")


def test_forbidden_text_is_shown_with_its_surroundings(folder: Path):
    text = "a" * 50 + "TODO" + "b" * 50
    (folder / "long.txt").write_text(text)
    (folder / "short.txt").write_text("xTODOy")
    long = judge("file_not_contains", {"path": "long.txt", "pattern": "TODO"}, folder)
    short = judge("file_not_contains", {"path": "short.txt", "pattern": "TODO"}, folder)
    assert long.actual == "a" * 40 + "TODO" + "b" * 40
    assert short.actual == "xTODOy"


def test_a_searched_file_shows_its_beginning(folder: Path):
    (folder / "long.txt").write_text("a" * 201)
    verdict = judge("file_contains", {"path": "long.txt", "pattern": "b"}, folder)
    assert verdict.actual == "a" * 200


KEY = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ0123456789"


@pytest.mark.parametrize(
    "kind, text, pattern, shown",
    [
        ("file_not_contains", f"{KEY} TODO", "TODO", "[API_KEY] TODO"),
        ("file_not_contains", f"TODO {'a' * 20} {KEY}", "TODO", f"TODO {'a' * 20} [API_KEY]"),
        ("file_not_contains", f"a {KEY} b", "ghp_aB3", "[API_KEY]"),
        ("file_contains", f"{'a' * 180} {KEY}", "TODO", f"{'a' * 180} [API_KEY]"),
    ],
)
def test_a_key_at_the_edge_of_the_shown_text_is_masked_before_it_is_cut(
    folder: Path, kind: str, text: str, pattern: str, shown: str
):
    (folder / "key.txt").write_text(text)
    verdict = judge(kind, {"path": "key.txt", "pattern": pattern}, folder)
    assert (verdict.status, verdict.actual) == ("fail", shown)


def test_the_scratchpad_of_ralph_is_searched_too(folder: Path):
    (folder / ".ralph" / "agent").mkdir(parents=True)
    (folder / ".ralph" / "agent" / "scratchpad.md").write_text("done")
    verdict = judge("scratchpad_contains", {"pattern": "done"}, folder)
    assert (verdict.status, verdict.context) == ("pass", {"path": ".ralph/agent/scratchpad.md"})
    assert verdict.check == "scratchpad_contains done"


def test_without_a_scratchpad_there_is_no_data_and_an_invalid_pattern_is_an_error(folder: Path):
    assert judge("scratchpad_contains", {"pattern": "x"}, folder).message == (
        "no data: no scratchpad found"
    )
    invalid = judge("scratchpad_contains", {"pattern": "["}, folder)
    assert invalid.status == "error"
    assert invalid.message.startswith("assertion 1: scratchpad_contains.pattern: invalid pattern")


def test_a_changed_snapshot_lists_changed_added_and_deleted_files(folder: Path):
    files = '{"files": {"src/main.py": "def other(): ...\\n", "old.txt": "old"}}'
    (folder / ".offbook").mkdir()
    (folder / ".offbook" / "approved.json").write_text(files)
    [verdict] = evaluate_all(
        [{"type": "snapshot_matches", "snapshot_id": "approved"}],
        CheckContext(RUN, folder, folder / ".offbook"),
    )
    assert verdict.check == "snapshot_matches approved"
    assert verdict.message == "3 files with differences: src/main.py, raw.bin, old.txt"
    assert verdict.actual == ["src/main.py", "raw.bin", "old.txt"]
    assert verdict.context["diff"]["changed_files"] == ["src/main.py"]
    assert verdict.context["diff"]["added_files"] == ["raw.bin"]
    assert verdict.context["diff"]["deleted_files"] == ["old.txt"]


@pytest.mark.parametrize(
    "approved, files, message",
    [
        ("{}", {"new.txt": ""}, "1 file with differences: new.txt"),
        ('{"old.txt": "old"}', {}, "1 file with differences: old.txt"),
    ],
)
def test_an_empty_side_of_a_snapshot_is_a_difference(
    tmp_path: Path, approved: str, files: dict[str, str], message: str
):
    (tmp_path / "work").mkdir()
    for name, text in files.items():
        (tmp_path / "work" / name).write_text(text)
    (tmp_path / "approved.json").write_text(f'{{"files": {approved}}}')
    [verdict] = evaluate_all(
        [{"type": "snapshot_matches", "snapshot_id": "approved"}],
        CheckContext(RUN, tmp_path / "work", tmp_path),
    )
    assert (verdict.status, verdict.message) == ("fail", message)


def test_a_pending_snapshot_is_not_suggested(folder: Path):
    for name in ("one.json", "two.json.proposed"):
        (folder / name).write_text('{"files": {}}')
    verdict = judge("snapshot_matches", {"snapshot_id": "onne"}, folder)
    assert verdict.message == "no snapshot 'onne'\ndid you mean 'one'?"
    verdict = judge("snapshot_matches", {"snapshot_id": "x"}, folder)
    assert verdict.message == "no snapshot 'x'\navailable: 'one'"


def test_the_folder_in_an_approved_snapshot_is_the_folder_of_this_run(tmp_path: Path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "log.txt").write_text(f"wrote {tmp_path / 'work'}/a.txt")
    (tmp_path / "approved.json").write_text('{"files": {"log.txt": "wrote [WORKSPACE]/a.txt"}}')
    [verdict] = evaluate_all(
        [{"type": "snapshot_matches", "snapshot_id": "approved"}],
        CheckContext(RUN, tmp_path / "work", tmp_path),
    )
    assert (verdict.status, verdict.message) == ("pass", "")


# ---------------------------------------------------------------------- errors of a check itself


ERRORS: dict[str, Exception] = {
    "NoData": NoData("nothing"),
    "UsageError": UsageError("wrong"),
    "KeyError": KeyError("x"),
    "OSError": OSError("disk"),
}


class Raising(Assertion, frozen=True, tag="raising"):
    error: str

    def evaluate(self, context: CheckContext) -> AssertionResult:  # noqa: ARG002
        raise ERRORS[self.error]


@pytest.mark.parametrize(
    "error, status, message",
    [
        ("NoData", "no_data", "no data: nothing"),
        ("UsageError", "error", "wrong"),
        ("KeyError", "error", "the trace has a malformed event: KeyError('x')"),
        ("OSError", "error", "cannot be checked: disk"),
    ],
)
def test_an_error_of_a_check_is_never_a_pass(error: str, status: str, message: str):
    verdict = Raising(error).judge(CheckContext(RUN))
    assert (verdict.check, verdict.status, verdict.message) == ("raising", status, message)


class Fixed(Assertion, frozen=True, tag="fixed"):
    ok: bool = False
    message: str = "no"
    text: Any = None

    def evaluate(self, context: CheckContext) -> AssertionResult:  # noqa: ARG002
        return AssertionResult(self.ok, 1, self.text, self.message)


def test_a_failure_without_a_message_shows_both_sides():
    verdict = one("iterations", {"exact": 1}, iteration(1, "a"), iteration(2, "b"))
    assert verdict.message == "expected {'exact': 1}, got 2"


def test_a_pass_has_no_message():
    assert Fixed(ok=True, message="a remark").judge(CheckContext(RUN)).message == ""


def test_a_long_text_is_shortened_in_a_verdict(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(assertion, "MAX_TEXT", 100)
    verdict = Fixed(text="x" * 1000).judge(CheckContext(RUN))
    assert len(verdict.actual) < 200


# ------------------------------------------------------------------------------- rows and columns


@given(st.lists(st.sampled_from("ab"), max_size=5), st.lists(st.sampled_from("ab"), max_size=5))
def test_the_ordered_pairing_is_the_longest_possible(actual: list[str], expected: list[str]):
    pairs = align_in_order(len(actual), len(expected), lambda a, e: actual[a] == expected[e])
    assert all(actual[a] == expected[e] for a, e in pairs)
    assert pairs == sorted(pairs)
    assert len({a for a, _ in pairs}) == len({e for _, e in pairs}) == len(pairs)
    lengths = [
        size
        for size in range(min(len(actual), len(expected)) + 1)
        if any(
            chosen in set(itertools.combinations(expected, size))
            for chosen in itertools.combinations(actual, size)
        )
    ]
    assert len(pairs) == max(lengths)


def names(text: str) -> list[ActualCall]:
    return [ActualCall(name, {"n": number}) for number, name in enumerate(text)]


def test_an_unmatched_call_shares_the_row_of_the_next_expectation_of_its_tool():
    # `b` is matched by number 1 only: the call before it may not take an expectation behind it.
    expected = [ExpectedCall("b", {"n": 1}), ExpectedCall("a", {"n": 9})]
    assert render_rows(compare_tool_calls(names("ab"), expected, "exact").rows) == [
        "  expected   | actual",
        '+            | a({"n":0})',
        '= b({"n":1}) | b({"n":1})',
        '- a({"n":9}) |',
    ]
    # Nor one between two that are matched.
    between = [ExpectedCall("b"), ExpectedCall("a", {"n": 9}), ExpectedCall("c")]
    assert [row.sign for row in compare_tool_calls(names("abc"), between, "exact").rows] == [
        "+",
        "=",
        "-",
        "=",
    ]
    # In any order, it shares that row.
    assert render_rows(compare_tool_calls(names("ab"), expected, "any_order").rows) == [
        "  expected   | actual",
        '≠ a({"n":9}) | a({"n":0})',
        "    .n: expected 9, got 0",
        '= b({"n":1}) | b({"n":1})',
    ]


def test_a_missing_step_has_its_row_before_the_step_that_follows_it():
    expected = [ExpectedCall("x"), ExpectedCall("a"), ExpectedCall("y"), ExpectedCall("b")]
    rows = compare_tool_calls(names("ab"), expected, "exact").rows
    assert [row.expected for row in rows] == ["x", "a", "y", "b"]
    assert [row.sign for row in rows] == ["-", "=", "-", "="]


def test_rows_as_expected_are_left_out_two_rows_from_a_difference():
    same = [AlignedRow(name, name, ok=True) for name in "abcd"]
    assert render_rows([*same, AlignedRow("x", ""), *same]) == [
        "  expected | actual",
        "  … 2 more as expected",
        "= c        | c",
        "= d        | d",
        "- x        |",
        "= a        | a",
        "= b        | b",
        "  … 2 more as expected",
    ]
    assert render_rows([]) == ["  expected | actual"]
    assert len(render_rows(same * 2)) == 9  # without a difference, everything is shown


def test_long_lists_are_aligned_block_by_block(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.trace.matching.MAX_ROWS", 3)
    assert align_equal("abcdefgh", "abcdxfgh!") == [(n, n) for n in range(8) if n != 4]


@pytest.mark.parametrize(
    "same, want, got",
    [
        (39, '"' + "s" * 39 + 'a"', '"' + "s" * 39 + 'b"'),
        (40, "…" + "s" * 20 + 'a"', "…" + "s" * 20 + 'b"'),
    ],
)
def test_long_texts_are_shown_from_twenty_characters_before_their_difference(
    same: int, want: str, got: str
):
    assert shorten_sides("s" * same + "a", "s" * same + "b") == (want, got)


def test_a_number_may_begin_as_the_other_does():
    assert shorten_sides(1, 12) == ("1", "12")


@pytest.mark.parametrize("length, shortened", [(60, False), (61, True)])
def test_a_column_has_at_most_sixty_characters(length: int, *, shortened: bool):
    rows = compare_tool_calls([], [ExpectedCall("x" * length)], "exact").rows
    shown = "x" * 59 + "…" if shortened else "x" * 60
    assert render_rows(rows)[1] == f"- {shown} |"


@pytest.mark.parametrize("length, shown", [(77, f'"{"x" * 77}"'), (78, f'"{"x" * 78}…')])
def test_a_value_on_one_line_has_at_most_seventy_nine_characters(length: int, shown: str):
    assert render_value("x" * length) == shown


def test_a_mismatch_with_half_a_character_is_shown():
    mismatch = Mismatch("note", {"text": "half \ud83d"}, "whole")
    assert str(mismatch) == r'note: expected {"text": "half \ud83d"}, got "whole"'
    assert r'"half \ud83d"' in describe_mismatch(mismatch)


@pytest.mark.parametrize("before, cut", [(39, False), (40, True)])
def test_a_long_text_is_shown_from_shortly_before_the_difference(before: int, *, cut: bool):
    line = describe_mismatch(Mismatch("", "x" * before + "a", "x" * before + "b"))
    # The quotation mark is a character, too.
    text = "x" * 20 if cut else '"' + "x" * before
    sign = "…" if cut else ""
    assert line == f'input: expected {sign}{text}a", got {sign}{text}b"'


@pytest.mark.parametrize(
    "actual, expected, patterns, ok",
    [
        (["rm -rf"], ["^rm"], True, True),
        (["ls"], ["^rm"], True, False),
        ([{"cmd": "rm"}], [{"cmd": "r."}], True, True),
        ([{"cmd": "rm"}], [{"cmd": "r."}], False, False),
        ("a", ["a"], False, False),
        ({"a": 1}, ["a"], False, False),
        (["a"], {"a": 1}, False, False),
        ((1, 2), [1, 2], False, True),
        ([2, 1], [1, 2], False, False),
        (True, True, False, True),
        (1, True, False, False),
    ],
)
def test_a_value_contains_what_is_expected(actual: Any, expected: Any, patterns: bool, ok: bool):  # noqa: FBT001 - columns
    assert contains(actual, expected, matches=text_matches if patterns else values_equal) is ok


# ------------------------------------------------------------------------- facts about the trace


def one(kind: str, fields: dict[str, Any], *events: Event) -> Verdict:
    [verdict] = evaluate_all([{"type": kind, **fields}], CheckContext(events))
    return verdict


@pytest.mark.parametrize(
    "kind, fields",
    [
        ("duration", {"max_secs": 1.5}),
        ("cost_within", {"max_dollars": 0.1}),
        ("iterations", {"min": 2}),
        ("iterations", {"max": 2}),
        ("iterations", {"min": 2, "max": 2, "exact": 2}),
        ("tool_called", {"tool": "find", "max": 2}),
        ("tool_called", {"tool": "find", "min": 0, "max": 2}),
        ("tool_never", {"tool": "find", "input": {"id": 8}}),
        ("tool_never", {"tool": "rm", "input": {"path": "^/.+"}}),
    ],
)
def test_a_bound_is_inclusive(kind: str, fields: dict[str, Any]):
    assert judge(kind, fields).status == "pass"


@pytest.mark.parametrize(
    "kind, fields",
    [
        ("iterations", {"exact": 1}),
        ("iterations", {"exact": 3}),
        ("iterations", {"max": 1}),
        ("tool_called", {"tool": "find", "min": 3}),
        ("tool_called", {"tool": "find", "input": {"id": 7}, "max": 1}),
        ("tool_never", {"tool": "find", "input": {"id": 7}}),
        ("tool_never", {"tool": "rm", "input": {"path": "^/"}}),
        ("tool_before", {"first": "write", "then": "rm"}),
        ("tool_status", {"tool": "rm", "status": "ok"}),
        ("hat_transition", {"from": "planner", "to": "planner"}),
    ],
)
def test_one_beyond_the_bound_fails(kind: str, fields: dict[str, Any]):
    assert judge(kind, fields).status == "fail"


@pytest.mark.parametrize(
    "args, found, status",
    [
        ("exact", {"id": 7}, "pass"),
        ("exact", {}, "fail"),
        ("partial", {}, "pass"),
        ("partial", {"id": 8}, "fail"),
        ("pattern", {"id": 7}, "pass"),
        ("ignore", {"id": 8}, "pass"),
    ],
)
def test_the_input_of_a_call_is_compared_as_args_says(
    args: str, found: dict[str, Any], status: str
):
    fields = {"tool": "find", "input": found, "args": args}
    assert judge("tool_called", fields).status == status


def test_an_assertion_that_is_no_dict_is_an_error_without_a_name():
    [verdict] = evaluate_all(["exit_code"], CheckContext(RUN))
    assert (verdict.check, verdict.status) == ("?", "error")


@pytest.mark.parametrize(
    "kind, fields",
    [
        ("tool_before", {"first": "find", "then": "write"}),
        ("tool_status", {"tool": "write", "status": "ok"}),
    ],
)
def test_a_tool_that_was_never_called_has_no_data(kind: str, fields: dict[str, Any]):
    assert judge(kind, fields).message == "no data: 'write' was never called"


def called(number: str = "1") -> Event:
    return make("tool.call", call_id=number, tool="find", input={}, step=1)


def result(*, is_error: bool | None, number: str = "1") -> Event:
    fields: dict[str, Any] = {"content": [], "details": None, "mocked": False, "step": 1}
    return make("tool.result", call_id=number, tool="find", is_error=is_error, **fields)


CALL = called()
BLOCKED = make("tool.blocked", call_id="1", tool="find", reason="no", step=1)
THIRD = [called("3"), result(is_error=False, number="3")]
AGAIN = [called("2"), result(is_error=False, number="2")]


@pytest.mark.parametrize(
    "status, events, expected",
    [
        ("ok", [CALL, result(is_error=False)], "pass"),
        ("ok", [CALL, result(is_error=True)], "fail"),
        ("ok", [CALL, result(is_error=None)], "no_data"),
        ("ok", [CALL, result(is_error=None), *AGAIN], "pass"),
        ("ok", [CALL], "fail"),
        ("retried", [CALL, result(is_error=True), *AGAIN], "pass"),
        ("retried", [CALL, result(is_error=False), *AGAIN], "fail"),
        ("retried", [CALL, BLOCKED, *AGAIN], "pass"),
        ("retried", [CALL, result(is_error=True), *AGAIN, called("3")], "pass"),
        ("retried", [*AGAIN, CALL, result(is_error=True), *THIRD], "pass"),
    ],
)
def test_the_status_of_a_tool_is_what_its_results_say(
    status: str, events: list[Event], expected: str
):
    assert one("tool_status", {"tool": "find", "status": status}, *events).status == expected


SUMMARY = publish("loop.terminate", "## Reason\nmax_iterations\n\nIterations: 7\nExit code: -9\n")


@pytest.mark.parametrize(
    "kind, expected, events, actual",
    [
        ("exit_code", 3, [make("process.exit", code=3)], 3),
        ("exit_code", 3, [make("process.exit", exit_code=3, code=4)], 3),
        ("exit_code", 3, [make("process.exit", code=3), make("process.exit", code=None)], 3),
        ("exit_code", 4, [make("process.exit", code=3), make("process.exit", code=4)], 4),
        ("exit_code", -9, [SUMMARY], -9),
        ("exit_code", 2, [make("_meta.termination", reason="max_iterations")], 2),
        ("termination_reason", "MaxIterations", [SUMMARY], "MaxIterations"),
        (
            "termination_reason",
            "Stopped",
            [SUMMARY, make("_meta.termination", reason="stopped")],
            "Stopped",
        ),
    ],
)
def test_the_end_of_a_run_is_read_from_its_events_and_from_the_summary_of_ralph(
    kind: str, expected: Any, events: list[Event], actual: Any
):
    verdict = one(kind, {"expected": expected}, *events)
    assert (verdict.status, verdict.actual) == ("pass", actual)


def test_an_unknown_reason_is_shown_as_it_was_recorded():
    event = make("_meta.termination", reason="the till burned")
    verdict = one("termination_reason", {"expected": "Stopped"}, event)
    assert (verdict.status, verdict.actual) == ("fail", "the till burned")


@pytest.mark.parametrize(
    "events, count",
    [
        ([SUMMARY], 7),
        ([SUMMARY, iteration(1, "a")], 1),
        ([make("_meta.termination", iterations=3), make("_meta.termination", iterations=4)], 3),
    ],
)
def test_recorded_iterations_count_more_than_a_summary(events: list[Event], count: int):
    assert one("iterations", {"exact": count}, *events).status == "pass"


@pytest.mark.parametrize(
    "events, dollars",
    [
        ([make("a", cost_usd=0.25), make("b", cost_dollars=0.5)], 0.75),
        ([make("a", total_cost_usd=1)], 1.0),
        ([make("a", cost_usd=0)], 0.0),
    ],
)
def test_the_costs_of_all_events_are_added(events: list[Event], dollars: float):
    assert one("cost_within", {"max_dollars": 5}, *events).actual == dollars


def test_a_single_event_has_no_duration():
    assert one("duration", {"max_secs": 60}, make("a")).status == "no_data"


def test_the_first_missing_event_follows_no_other():
    verdict = one("event_sequence", {"topics": ["a", "b"]}, publish("b"))
    assert verdict.message.splitlines()[0] == "'a' was not published:"


def test_verdicts_do_not_count_towards_the_duration():
    events = [Event(1000, "a", {}), Event(4000, "b", {}), Event(9000, VERDICT, {})]
    assert one("duration", {"max_secs": 60}, *events).actual == 3.0


@pytest.mark.parametrize(
    "end, status",
    [
        ([], "no_data"),
        ([make(RUN_END, ok=True)], "pass"),
        ([publish("loop.terminate", "## Reason\nStopped")], "pass"),
        ([make("process.exit", code=0)], "no_data"),
    ],
)
@pytest.mark.parametrize("start", [RUN_START, LOOP_START])
def test_of_a_run_without_an_end_nothing_is_known(start: str, end: list[Event], status: str):
    verdict = one("no_event", {"topic": "x"}, make(start), publish("a"), *end)
    assert verdict.status == status
    if status == "no_data":
        assert verdict.message == "no data: the run did not end, so its trace is incomplete"


@pytest.mark.parametrize(
    "text, truncated, status",
    [("done", True, "pass"), ("other", True, "no_data"), ("other", False, "fail")],
)
def test_output_that_was_not_kept_may_contain_the_pattern(
    text: str,
    truncated: bool,  # noqa: FBT001 - a column
    status: str,
):
    events = [
        make("process.output", stream="stdout", text=text),
        make("process.exit", code=0, truncated=truncated),
    ]
    assert one("stdout_contains", {"pattern": "done"}, *events).status == status


def test_one_event_that_matches_is_enough():
    events = [publish("a", "found"), publish("a", "other")]
    fields = {"topic": "a", "payload_pattern": "found"}
    assert one("event_occurred", fields, *events).status == "pass"


def test_a_file_that_cannot_be_read_fails_with_the_reason():
    [verdict] = evaluate_all(
        [{"type": "file_contains", "path": "mem", "pattern": "x"}],
        CheckContext(RUN, Path("/proc/self"), Path("/proc/self")),
    )
    assert (verdict.status, verdict.message) == ("fail", "mem: Input/output error")


def test_a_line_feed_in_a_row_is_shown_as_one():
    assert "a\\nb" in "\n".join(render_rows([AlignedRow("a\nb", "c")]))


def test_a_mismatch_is_shown_with_its_path_and_both_sides():
    assert str(Mismatch("$.id", 7, 8)) == "$.id: expected 7, got 8"


def test_a_call_has_no_differences_from_an_expectation_without_input():
    assert ExpectedCall("find").differences(ActualCall("find", {"id": 7})) == ()


def test_an_expected_input_is_a_part_of_the_actual_one_at_every_depth():
    expected = ExpectedCall("find", {"order": {"item": {"id": 7}}})
    assert expected.matches(ActualCall("find", {"order": {"item": {"id": 7, "note": "x"}}}))


def test_an_expected_input_is_a_dict_or_a_function():
    with pytest.raises(ValueError, match="must be a dict or a function"):
        ExpectedCall("find", 7)


@pytest.mark.parametrize("actual, expected", [(7, "7"), ("7", 7)])
def test_a_pattern_matches_texts_only(actual: object, expected: object):
    assert not text_matches(actual, expected)


def test_an_invalid_assertion_is_an_error_with_its_type_and_number():
    _, verdict = evaluate_all(
        [{"type": "exit_code", "expected": 0}, {"type": "exit_code"}], CheckContext(RUN)
    )
    assert verdict.check == "exit_code"
    assert verdict.message.startswith("assertion 2: exit_code: missing key")


def test_an_assertion_may_be_parsed_without_a_place():
    with pytest.raises(UsageError) as failure:
        parse_assertion({"type": "exit_cod"})
    assert str(failure.value).startswith("unknown assertion type 'exit_cod'")


@pytest.mark.parametrize(
    "kind, fields, message",
    [
        ("file_contains", {"path": "a", "pattern": "["}, "file_contains.pattern: invalid"),
        ("file_not_contains", {"path": "a", "pattern": "["}, "file_not_contains.pattern: invalid"),
        (
            "event_occurred",
            {"topic": "a", "payload_pattern": "["},
            "event_occurred.payload_pattern: invalid",
        ),
        ("hat_sequence", {"hats": []}, "hat_sequence: `hats` is empty"),
        ("tool_sequence", {"tools": [], "mode": "superset"}, "tool_sequence: `tools` is empty"),
        ("event_sequence", {"topics": []}, "event_sequence: `topics` is empty"),
    ],
)
def test_a_field_with_a_wrong_value_is_named(
    tmp_path: Path, kind: str, fields: dict[str, Any], message: str
):
    (tmp_path / "a").write_text("x")
    verdict = judge(kind, fields, tmp_path)
    assert verdict.status == "error"
    assert verdict.message.startswith(f"assertion 1: {message}")


def test_an_assertion_that_is_parsed_already_is_kept():
    parsed = parse_assertion({"type": "exit_code", "expected": 0})
    assert parse_assertion(parsed) is parsed


@pytest.mark.parametrize("answer", [True, False])
def test_a_function_decides_whether_an_input_matches(*, answer: bool):
    def decide(_: object) -> bool:
        return answer

    assert ExpectedCall("find", decide).matches(ActualCall("find", {"id": 7})) is answer


def test_a_call_with_another_input_is_beside_the_call_that_is_missing():
    raw = {"type": "tool_called", "tool": "refund", "input": {"id": 8}, "min": 2}
    [verdict] = evaluate_all([raw], CheckContext(WORK))
    assert verdict.message.splitlines() == [
        'refund({"id":8}) ran 1 time:',
        "  expected         | actual",
        '                   | find({"id":7})',
        '≠ refund({"id":8}) | refund({"id":7})',
        "    .id: expected 8, got 7",
        '= refund({"id":8}) | refund({"id":8})',
    ]


def test_a_tool_that_did_not_run_has_an_empty_side():
    message = judge("tool_before", {"first": "find", "then": "rm"}).message
    assert message.splitlines()[2:] == ["- find     |", "- rm       |"]


words = st.text(st.sampled_from("abc"), max_size=8)


@given(words, words)
def test_steps_that_match_by_a_predicate_are_aligned_like_equal_ones(actual: str, expected: str):
    pairs = align_in_order(len(actual), len(expected), lambda a, e: actual[a] == expected[e])
    assert len(pairs) == len(align_equal(actual, expected))
    assert all(actual[a] == expected[e] for a, e in pairs)


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"expected": "0"}, "exit_code: expected an integer, got a text (at $.expected)"),
        ({}, "exit_code: missing key 'expected'"),
    ],
)
def test_the_place_of_a_wrong_field_is_named(fields: dict[str, Any], problem: str):
    with pytest.raises(UsageError) as failure:
        parse_assertion({"type": "exit_code", **fields}, "assertion 1")
    assert failure.value.what == problem


@pytest.mark.parametrize("count, status", [(1, "no_data"), (2, "pass")])
def test_a_trace_of_one_event_has_no_duration(tmp_path: Path, count: int, status: str):
    with record_trace(tmp_path / "events.jsonl") as hub:
        for _ in range(count):
            hub.emit("a", {})
    context = CheckContext(Trace(tmp_path / "events.jsonl"))
    [verdict] = evaluate_all([{"type": "duration", "max_secs": 60}], context)
    assert verdict.status == status


def test_an_invalid_pattern_is_an_error_also_without_output_and_events():
    assert one("stdout_contains", {"pattern": "["}).status == "error"
    assert one("event_occurred", {"topic": "a", "payload_pattern": "["}).status == "error"


def test_the_first_five_events_of_a_topic_are_shown():
    events = [publish("a", number) for number in range(6)]
    assert len(one("no_event", {"topic": "a"}, *events).actual) == 5


def test_a_long_sequence_of_topics_is_shortened():
    shown = one("event_sequence", {"topics": ["a"]}, *[publish("a")] * 201).actual
    assert (len(shown), shown[-2:]) == (201, ["a", "…"])
    assert one("event_sequence", {"topics": ["a"]}, *[publish("a")] * 200).actual == ["a"] * 200


@pytest.mark.parametrize("found, last", [([], 199), (["t3"], 202)])
def test_of_a_long_sequence_200_topics_after_the_last_match_are_shown(found: list[str], last: int):
    events = [publish(f"t{number}") for number in range(300)]
    message = one("event_sequence", {"topics": [*found, "missing"]}, *events).message
    assert (f"| t{last}\n" in message, f"| t{last + 1}\n" in message) == (True, False), message


def test_only_a_call_that_came_too_late_is_a_difference():
    message = judge("tool_before", {"first": "save", "then": "find"}).message
    assert message.splitlines()[2:] == [
        "- save     |",
        "= find     | find",
        "           | find",
        "+          | save",
    ]


def test_two_iterations_of_one_hat_are_no_transition():
    events = [iteration(number, hat) for number, hat in enumerate("aabab")]
    verdict = one("hat_transition", {"from": "a", "to": "b"}, *events)
    assert verdict.actual == ["a -> b", "b -> a", "a -> b"]
    assert verdict.context == {"transitions": ["a -> b", "b -> a"]}
    assert one("hat_transition", {"from": "a", "to": "a"}, *events).status == "fail"


def test_a_context_names_the_unreadable_lines_of_its_trace(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    with record_trace(path, subject="x"):
        pass
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(first + "not JSON\n" + "".join(rest))
    context = CheckContext(Trace(path))
    context.get(Termination)
    assert [fault.line for fault in context.faults] == [2]
