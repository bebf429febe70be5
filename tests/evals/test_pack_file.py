"""Packs are read strictly: an error has the file, the line and the nearest right word."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.evals import Pack, find_json_line, find_toml_line, order_ladders, read_pack
from offbook.evals.pack_file import find_package_packs
from tests.evals.conftest import RUN, Files

Write = Callable[[Files], Path]
RUBRIC = (
    '[[rubrics]]\nid = "status"\n'
    '[[rubrics.assertions]]\nkind = "run-status"\nexpected = "completed"\n'
)
CASE = '[[cases]]\nid = "one"\nrun = "run.json"\nrubrics = ["status"]\n'
JUDGED = '[[rubrics]]\nid = "style"\nkind = "llm-judge"\nprompt = "Is it clear?"\n'
LADDER = (
    '[[ladders]]\nid = "{id}"\nafter = ["{after}"]\n[ladders.backend]\npath = "t.jsonl"\n'
    '[[ladders.timeout-tiers]]\nid = "t"\n'
)

# The pack, the line of the error, and a part of its message.
BAD_PACKS = {
    "a typo in a severity": (
        RUBRIC + CASE + 'severity = "wanring"\n',
        10,
        "did you mean 'warning'",
    ),
    "an unknown key": (RUBRIC + CASE + "treshold = 1\n", 10, "did you mean 'thresholds'"),
    "a case id twice": (RUBRIC + CASE + CASE, 11, "the id 'one' is defined twice"),
    "an unknown rubric": (
        RUBRIC + CASE.replace('["status"]', '["statsu"]'),
        9,
        "did you mean 'status'",
    ),
    "a rubric without a rule": ('[[rubrics]]\nid = "empty"\n' + CASE, 1, "has no rule"),
    "an assertion without a kind": (
        '[[rubrics]]\nid = "r"\n[[rubrics.assertions]]\nexpected = 1\n' + CASE,
        3,
        "needs a kind, or a path",
    ),
    "a status without an expected value": (
        '[[rubrics]]\nid = "r"\n[[rubrics.assertions]]\nkind = "run-status"\n' + CASE,
        3,
        "needs expected",
    ),
    "an unknown kind of assertion": (
        RUBRIC.replace("run-status", "run-statsu") + CASE,
        4,
        "did you mean 'run-status'",
    ),
    "an invalid check of Offbook": (
        '[[rubrics]]\nid = "r"\n[[rubrics.assertions]]\nkind = "check"\n'
        'check = { type = "tool_caled", tool = "x" }\n' + CASE,
        3,
        "did you mean 'tool_called'",
    ),
    "a pointer that is no pointer": (
        '[[rubrics]]\nid = "r"\n[[rubrics.assertions]]\npath = "usage.models"\n' + CASE,
        3,
        "write '/usage/models'",
    ),
    "a missing fixture": (
        '[[fixtures]]\nid = "f"\nkind = "run-record"\npath = "nope.json"\n' + RUBRIC + CASE,
        1,
        "the file of the fixture 'f' is missing",
    ),
    "a fixture of another kind": (
        '[[fixtures]]\nid = "f"\nkind = "replay-fixture"\ninline = { expected_status = "x" }\n'
        + RUBRIC
        + CASE.replace("run.json", "f"),
        12,
        "is a replay-fixture, and run needs run-record",
    ),
    "a threshold on a metric that no case has": (
        RUBRIC + CASE + "[cases.thresholds]\nmin-score = 0.5\n",
        11,
        "min_score is a threshold on score, which no case has",
    ),
    "a default threshold on a metric that no case has": (
        "[defaults.thresholds]\nmin_confidence = 1\n" + RUBRIC + CASE,
        2,
        "which no case has",
    ),
    "a cyclic ladder": (
        LADDER.format(id="a", after="b") + LADDER.format(id="b", after="a"),
        3,
        "the ladders form a cycle: a → b → a",
    ),
    "a ladder without tiers": (
        '[[ladders]]\nid = "a"\n[ladders.backend]\npath = "t.jsonl"\n',
        1,
        "has no timeout tiers",
    ),
    "a case without a run": (
        RUBRIC + '[[cases]]\nid = "one"\nrubrics = ["status"]\n',
        6,
        "has neither run",
    ),
    "a split with a case twice": (
        RUBRIC + CASE + '[split]\na = ["one"]\nb = ["one"]\n',
        12,
        "is twice in the split",
    ),
    "a split without a case": (
        RUBRIC + CASE + "[split]\na = []\n",
        10,
        "is in no part of the split",
    ),
    "a key with a dash and with an underscore": (
        RUBRIC + CASE + 'friction_events = "a"\nfriction-events = "b"\n',
        10,
        "is defined twice",
    ),
    "no cases": ('id = "x"\n', None, "has no cases and no ladders"),
    "invalid TOML": ('id = "x\n', 1, "invalid TOML"),
    "a newer version": ("version = 2\n" + RUBRIC + CASE, 1, "unsupported version 2"),
}


@pytest.mark.parametrize("name", BAD_PACKS)
def test_a_bad_pack_is_refused_with_its_line(write: Write, name: str):
    text, line, message = BAD_PACKS[name]
    path = write({"pack.toml": text, "run.json": RUN}) / "pack.toml"
    with pytest.raises(FormatError) as error:
        read_pack(path)
    assert message in str(error.value)
    assert error.value.line == line
    assert str(path) in str(error.value)


FIXTURES: dict[str, tuple[str, Any, str]] = {
    "a run record without a status": ("run-record", {"id": "x"}, "not a run record"),
    "a list as a run record": ("recorded-run", [1], "expected a run record"),
    "a run record with a wrong type": ("run-record", {"status": 1}, "expected a text"),
    "a replay fixture without expectations": (
        "replay-fixture",
        {"id": "x"},
        "not a replay fixture",
    ),
    "friction of an unknown kind": (
        "friction-events",
        [{"kind": "repeated_qery", "redacted_summary": "x"}],
        "did you mean 'repeated_query'",
    ),
    "friction without a summary": (
        "friction-events",
        [{"kind": "tool_gap", "redacted_summary": " "}],
        "empty redacted_summary",
    ),
    "a trace of numbers": ("jsonl-trace", "1\n2\n", "expected an object"),
    "an empty trace": ("jsonl-trace", "", "has no records"),
    "a trace of other objects": ("jsonl-trace", '{"a": 1}\n', "has an event, a type or a prompt"),
    "provider events that are none": ("provider-events", "[1]", "expected an object"),
    "a payload that is a text": ("connector-payload", '"x"', "an object or a list"),
    "a payload that is no JSON": ("connector-payload", "{", "invalid JSON"),
}


@pytest.mark.parametrize("name", FIXTURES)
def test_a_fixture_of_every_kind_is_checked(write: Write, name: str):
    kind, content, message = FIXTURES[name]
    suffix = "jsonl" if kind == "jsonl-trace" else "json"
    fixture = f'[[fixtures]]\nid = "f"\nkind = "{kind}"\npath = "f.{suffix}"\n'
    folder = write({"pack.toml": fixture + RUBRIC + CASE, "run.json": RUN, f"f.{suffix}": content})
    with pytest.raises(FormatError, match=message):
        read_pack(folder / "pack.toml")


GOOD_FIXTURES = {
    "jsonl-trace": '{"prompt": "hi", "response": "x", "trace_id": "t"}\n',
    "provider-events": '[{"kind": "message", "provider": "slack"}]',
    "connector-payload": '{"type": "url_verification"}',
}


@pytest.mark.parametrize("kind", GOOD_FIXTURES)
def test_a_fixture_of_a_reserved_kind_is_accepted(write: Write, kind: str):
    suffix = "jsonl" if kind == "jsonl-trace" else "json"
    more = 'provider = "slack"\nevent-kind = "message"\n' if kind == "provider-events" else ""
    fixture = f'[[fixtures]]\nid = "f"\nkind = "{kind}"\npath = "f.{suffix}"\n{more}'
    content = GOOD_FIXTURES[kind]
    folder = write({"pack.toml": fixture + RUBRIC + CASE, "run.json": RUN, f"f.{suffix}": content})
    assert read_pack(folder / "pack.toml").pack.fixtures[0].kind == kind


@pytest.mark.parametrize(
    "inline, message",
    [
        ('[{prompt = "hi"}]', ""),
        ('{events = [{prompt = "hi"}]}', ""),
        ('{prompt = "hi"}', ""),
        ("{events = []}", "the fixture 'f' has no records"),
        ('"hi"', "the fixture 'f' has no records"),
        ('{events = [{reply = "x"}]}', "has an event, a type or a prompt"),
    ],
)
def test_the_records_of_an_inline_trace_are_checked(write: Write, inline: str, message: str):
    fixture = f'[[fixtures]]\nid = "f"\nkind = "jsonl-trace"\ninline = {inline}\n'
    path = write({"pack.toml": fixture + RUBRIC + CASE, "run.json": RUN}) / "pack.toml"
    if message:
        with pytest.raises(FormatError, match=message):
            read_pack(path)
    else:
        assert read_pack(path).fixtures["f"].kind == "jsonl-trace"


def test_provider_events_of_another_provider_are_refused(write: Write):
    fixture = (
        '[[fixtures]]\nid = "f"\nkind = "provider-events"\npath = "f.json"\nprovider = "github"\n'
    )
    content = GOOD_FIXTURES["provider-events"]
    folder = write({"pack.toml": fixture + RUBRIC + CASE, "run.json": RUN, "f.json": content})
    with pytest.raises(FormatError, match="no event has the provider 'github'"):
        read_pack(folder / "pack.toml")


@pytest.mark.parametrize("suffix", ["toml", "json", "yaml"])
def test_a_pack_is_the_same_in_every_format(write: Write, suffix: str):
    cases = [{"id": "one", "run": "run.json", "thresholds": {"max-latency-ms": 5}}]
    toml = '[[cases]]\nid = "one"\nrun = "run.json"\n[cases.thresholds]\nmax-latency-ms = 5\n'
    yaml = "cases:\n  - id: one\n    run: run.json\n    thresholds: {max-latency-ms: 5}\n"
    text = {"toml": toml, "json": json.dumps({"cases": cases}), "yaml": yaml}[suffix]
    folder = write({f"pack.{suffix}": text, "run.json": RUN})
    (case,) = read_pack(folder / f"pack.{suffix}").pack.cases
    assert (case.id, case.thresholds.max_latency_ms) == ("one", 5)


def test_values_of_users_keep_their_keys(write: Write):
    text = CASE.replace('rubrics = ["status"]\n', "") + "[cases.metadata]\nmin-x = 1\n"
    folder = write({"pack.toml": text, "run.json": RUN})
    assert read_pack(folder / "pack.toml").pack.cases[0].metadata == {"min-x": 1}


def test_a_suite_is_a_pack_with_labels(write: Write):
    suite = {
        "_type": "eval_suite_manifest",
        "id": "s",
        "cases": [{"label": "a", "run_path": "run.json"}],
    }
    folder = write({"suite.json": suite, "run.json": RUN})
    (case,) = read_pack(folder / "suite.json").pack.cases
    assert (case.id, case.name, case.run) == ("a", "a", "run.json")


def test_a_judged_rubric_gives_a_case_a_score(write: Write):
    text = JUDGED + CASE.replace("status", "style") + "[cases.thresholds]\nmin-score = 0.5\n"
    folder = write({"pack.toml": text, "run.json": RUN})
    assert read_pack(folder / "pack.toml").pack.cases[0].thresholds.min_score == 0.5


def test_ladders_follow_those_they_depend_on(write: Write):
    text = LADDER.format(id="b", after="a") + LADDER.format(id="a", after="x").replace(
        'after = ["x"]\n', ""
    )
    folder = write({"pack.toml": text, "t.jsonl": ""})
    pack = read_pack(folder / "pack.toml").pack
    assert [ladder.id for ladder in order_ladders(pack.ladders)] == ["a", "b"]


SEVERITIES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "case": ({"severity": "info"}, {}, "informational"),
    "thresholds of the case": (
        {"thresholds": {"severity": "warn"}},
        {"severity": "info"},
        "warning",
    ),
    "defaults": ({}, {"severity": "warning"}, "warning"),
    "default thresholds": ({}, {"thresholds": {"severity": "warning"}}, "warning"),
    "nothing": ({}, {}, "blocking"),
}


@pytest.mark.parametrize("name", SEVERITIES)
def test_the_severity_is_the_nearest_one(write: Write, name: str):
    case, defaults, severity = SEVERITIES[name]
    pack = {"cases": [{"id": "c", "run": "run.json", **case}], "defaults": defaults}
    loaded = read_pack(write({"pack.json": pack, "run.json": RUN}) / "pack.json")
    assert loaded.pack.severity_of(loaded.pack.cases[0]) == severity


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 3))
def test_the_line_of_a_json_value_is_its_line(counts: list[int], column: int):
    value = {"cases": [{"id": str(n), "list": list(range(n))} for n in counts]}
    text = json.dumps(value, indent=column + 1)
    lines = text.splitlines()
    for number in range(len(counts)):
        line = find_json_line(text, f"$.cases[{number}].id")
        assert line is not None
        assert f'"id": "{counts[number]}"' in lines[line - 1]


def test_the_line_of_a_nested_toml_table_is_in_its_item():
    text = "[[a]]\nx = 1\n[a.b]\ny = 1\n[[a]]\nx = 2\n[a.b]\ny = 2\n"
    assert find_toml_line(text, "$.a[1].b.y") == 8


def test_every_field_of_a_pack_has_a_type_without_any_unknown_field():
    with pytest.raises(TypeError):
        Pack(unknown=1)  # type: ignore[call-arg]


# the files of a package of Harn -> its packs
HARN_PACKAGES: dict[str, tuple[dict[str, str], list[str]]] = {
    "its own file": ({"harn.eval.toml": ""}, ["harn.eval.toml"]),
    "named files": (
        {"harn.toml": '[package]\nevals = ["a.toml"]\n', "a.toml": "", "harn.eval.toml": ""},
        ["a.toml"],
    ),
    "a manifest that names none": (
        {"harn.toml": '[package]\nname = "x"\n', "harn.eval.toml": ""},
        ["harn.eval.toml"],
    ),
    "a folder with packs": (
        {"harn.toml": '[package]\nevals = ["checks"]\n', "checks/a.eval.toml": ""},
        ["checks/a.eval.toml"],
    ),
    "an installed package": (
        {".harn/packages/dep/harn.eval.toml": ""},
        [".harn/packages/dep/harn.eval.toml"],
    ),
}


@pytest.mark.parametrize("name", HARN_PACKAGES)
def test_the_packs_of_a_package_of_harn_are_found(tmp_path: Path, name: str):
    files, packs = HARN_PACKAGES[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert find_package_packs(tmp_path) == [tmp_path / pack for pack in packs]


@pytest.mark.parametrize(
    "evals, message",
    [
        ('["gone.toml"]', r"harn\.toml: \[package\] evals names a missing file: gone\.toml"),
        ('"a.toml"', r"harn\.toml: \[package\] evals is not a list of files"),
        ("[1]", r"harn\.toml: \[package\] evals is not a list of files"),
        ('["."]', "no eval pack in this folder"),
    ],
)
def test_packs_of_a_package_of_harn_that_do_not_exist_are_named(
    tmp_path: Path, evals: str, message: str
):
    (tmp_path / "harn.toml").write_text(f"[package]\nevals = {evals}\n")
    with pytest.raises(FormatError, match=message):
        find_package_packs(tmp_path)
