"""Reference parsers read the same cases from every report format."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.reports import (
    Attempt,
    Case,
    CtrfReport,
    JsonReport,
    JUnitReport,
    Report,
    Suite,
    Tap13Report,
    TapReport,
    collect_suite,
    remove_invalid,
)
from offbook.trace import RUN_END, RUN_START, VERDICT, ConversationChange, Event

NAMES = [
    "plain",
    "with # SKIP in it",
    "with # TODO in it",
    "a \\ backslash and \\# both",
    "quotes \" and ' and <tags> & ]]> entities",
    "emoji 🎭 and accents é",
    "escape \x1b[31mred\x1b[0m and nul \x00",
    "two\nlines",
    "x" * 10_000,
    "  spaces  ",
]
SUITE = Suite(
    "hostile",
    (
        *(Case(f"{n} {name}", "passed") for n, name in enumerate(NAMES, 1)),
        Case("20 fails", "failed", 5, "wrong\x1b order", ["a"], ["b"], "fail"),
        Case("21 breaks", "error", 0, "pattern '[' does not compile", kind="error"),
        Case("22 waits", "skipped", 0, "no # credentials"),
        Case("23 flaky", "passed", history=(Attempt(1, "timeout after 30s", "timeout"),)),
        Case("24 long", "failed", 0, "m" * 1_000_000, 1, 2, "fail"),
    ),
    1_700_000_000_000,
    1_700_000_001_500,
    "session.jsonl",
    (
        ConversationChange("system", "You find orders.", "You refund # orders \x1b\n]]> <b>."),
        ConversationChange("model", "model-one", "model-two"),
    ),
)
# Imported by name, because these packages have incomplete types.
etree: Any = import_module("lxml.etree")
jsonschema: Any = import_module("jsonschema")
JUnitXml: Any = import_module("junitparser").JUnitXml
JUNIT_XSD = "formats/jenkins-xunit-junit-10.xsd"
CTRF_SCHEMA = "formats/ctrf-schema-0.0.npm-0.3.0.json"


def flat(name: str) -> str:
    """Return a name reduced to what every format can represent."""
    return re.sub(r"\s+", " ", re.sub(r"[\x00-\x08\x0e-\x1f]", "", name)).strip()


def names_and_statuses(suite: Suite) -> list[tuple[str, str]]:
    return [(flat(case.name), case.status) for case in suite.cases]


def from_junit(text: str) -> list[tuple[str, str]]:
    cases: list[tuple[str, str]] = []
    for suite in JUnitXml.fromstring(text.encode()):
        for case in suite:
            kinds = {type(result).__name__ for result in case.result}
            status = (
                "failed"
                if "Failure" in kinds
                else "error"
                if "Error" in kinds
                else "skipped"
                if "Skipped" in kinds
                else "passed"
            )
            cases.append((flat(case.name), status))
    return cases


def from_tap(text: str, commands: Path) -> list[tuple[str, str]]:
    """Return the cases that the reference parser reads in its strict mode."""
    process = subprocess.run(
        [commands / "tap-parser", "--strict", "-j", "0"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    cases: list[tuple[str, str]] = []
    for kind, *values in json.loads(process.stdout):
        value: Any = values[0] if values else None
        assert kind != "extra", value
        if kind == "complete":
            assert not [f for f in value["failures"] if f.get("tapError")]
        if kind == "assert":
            status = "skipped" if value.get("skip") else "passed" if value["ok"] else "failed"
            cases.append((flat(value["name"]), status))
    return cases


def from_ctrf(text: str) -> list[tuple[str, str]]:
    return [(flat(test["name"]), test["status"]) for test in json.loads(text)["results"]["tests"]]


def without_errors(cases: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the cases as TAP and CTRF report them: an error is a failure."""
    return [(name, "failed" if status == "error" else status) for name, status in cases]


def test_a_junit_parser_reads_the_same_cases():
    assert from_junit(JUnitReport().render(SUITE)) == names_and_statuses(SUITE)


@pytest.mark.external
def test_junit_is_valid_according_to_the_schema_of_jenkins(shared_data: Path):
    schema = etree.XMLSchema(etree.parse(shared_data / JUNIT_XSD))
    document = etree.parse(
        io.BytesIO(JUnitReport().render(SUITE).encode()), etree.XMLParser(huge_tree=True)
    )
    assert schema.validate(document), schema.error_log


@pytest.mark.external
def test_junit_has_only_elements_and_attributes_that_are_in_common_use(shared_data: Path):
    def words(document: Any) -> set[tuple[str, str]]:
        return {
            (element.tag, name)
            for element in document.iter()
            if isinstance(element.tag, str)
            for name in ("", *element.attrib)
        }

    examples = [*(shared_data / "formats").glob("testmo-*.xml")]
    known = {word for path in examples for word in words(etree.parse(path))}
    ours = words(etree.fromstring(JUnitReport().render(SUITE).encode()))
    assert len(known) > 30
    # Jenkins and Maven read the earlier failures of a flaky case here
    assert {tag for tag, _ in ours - known} <= {"flakyFailure"}


@pytest.mark.external
def test_the_cases_of_junit_are_those_of_ant(shared_data: Path):
    """The schema of Ant needs fields of a Java suite and has no totals: nothing else differs."""
    schema = etree.XMLSchema(etree.parse(shared_data / "formats/windyroad-ant-JUnit.xsd"))
    root = etree.fromstring(
        JUnitReport().render(SUITE, OTHER).encode(), etree.XMLParser(huge_tree=True)
    )
    root.attrib.clear()  # totals of all suites
    for number, suite in enumerate(root):
        required = {"id": str(number), "package": "offbook", "hostname": "localhost"}
        suite.attrib.update(required | {"timestamp": "2026-01-01T00:00:00"})
        if suite.find("properties") is None:
            suite.insert(0, etree.Element("properties"))
        for flaky in suite.findall("testcase/flakyFailure"):  # of Maven and Jenkins
            flaky.getparent().remove(flaky)
        for name in ("system-out", "system-err"):
            if suite.find(name) is None:
                suite.append(etree.Element(name))
    assert len(root.findall("testsuite/testcase")) == len(SUITE.cases) + len(OTHER.cases)
    assert schema.validate(root), schema.error_log


def test_a_tap_parser_reads_the_same_cases(npm_parsers: Path):
    assert from_tap(TapReport().render(SUITE), npm_parsers) == without_errors(
        names_and_statuses(SUITE)
    )


@pytest.mark.skipif(shutil.which("prove") is None, reason="prove is not installed")
def test_prove_reads_tap_13_without_a_parse_error(tmp_path: Path):
    path = tmp_path / "report.tap13"
    path.write_text(Tap13Report().render(SUITE))
    process = subprocess.run(
        [shutil.which("prove") or "", "--exec", "cat", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Parse errors" not in process.stdout
    failed = sum(status in {"failed", "error"} for _, status in names_and_statuses(SUITE))
    assert f"Tests: {len(SUITE.cases)} Failed: {failed})" in process.stdout


def test_ctrf_has_the_same_cases():
    assert from_ctrf(CtrfReport().render(SUITE)) == without_errors(names_and_statuses(SUITE))


@pytest.mark.external
@pytest.mark.parametrize("schema", [CTRF_SCHEMA, "formats/ctrf.schema.repo-head.json"])
def test_ctrf_is_valid_according_to_its_schema_and_the_totals_are_right(
    shared_data: Path, schema: str
):
    report = json.loads(CtrfReport().render(SUITE))
    jsonschema.Draft7Validator(json.loads((shared_data / schema).read_text())).validate(report)
    summary = report["results"]["summary"]
    assert summary["tests"] == len(SUITE.cases)
    assert summary["passed"] + summary["failed"] + summary["skipped"] == summary["tests"]


@pytest.mark.external
def test_the_tests_of_each_example_of_ctrf_are_reported_as_there(shared_data: Path):
    """Their names, statuses, messages and retries; both reports are valid."""
    head = json.loads((shared_data / "formats/ctrf.schema.repo-head.json").read_text())
    validator = jsonschema.Draft7Validator(head)
    paths = sorted((shared_data / "formats").glob("ctrf-example-*.json"))
    compared = 0
    for path in paths:
        example = json.loads(path.read_text())
        validator.validate(example)
        tests = example["results"]["tests"]
        suite = Suite(path.stem, tuple(read_ctrf_test(test) for test in tests))
        report = json.loads(CtrfReport().render(suite))
        validator.validate(report)
        for ours, theirs in zip(report["results"]["tests"], tests, strict=True):
            for key in ("name", "status", "duration", "message", "flaky", "retries"):
                if key in theirs:
                    assert ours[key] == theirs[key], (path.name, key)
                    compared += 1
        totals = example["results"]["summary"]
        summary = report["results"]["summary"]
        kinds = ("tests", "passed", "failed", "skipped", "pending", "other")
        assert {key: summary[key] for key in kinds} == {key: totals[key] for key in kinds}
    assert (len(paths), compared) >= (5, 20)


def read_ctrf_test(test: dict[str, Any]) -> Case:
    """Return a test of a CTRF report as a case."""
    failed = [one for one in test.get("retryAttempts", ()) if one["status"] == "failed"]
    history = tuple(Attempt(n, one.get("message", "")) for n, one in enumerate(failed, 1))
    return Case(
        test["name"], test["status"], test["duration"], test.get("message", ""), history=history
    )


def test_a_flaky_case_is_marked_in_every_format():
    assert "flakyFailure" in JUnitReport().render(SUITE)
    assert "flaky: true" in TapReport().render(SUITE)
    flaky = [
        t for t in json.loads(CtrfReport().render(SUITE))["results"]["tests"] if t.get("flaky")
    ]
    assert [test["retries"] for test in flaky] == [1]
    assert json.loads(JsonReport().render(SUITE))["flaky"] is True


def test_a_failure_has_the_expected_and_the_actual_value():
    for report in (JUnitReport(), TapReport(), CtrfReport(), JsonReport()):
        text = report.render(SUITE)
        assert "a" in text
        assert "expected" in text


MODEL_CHANGE = "another model: expected 'model-one', got 'model-two'"


def test_a_junit_parser_reads_the_changes():
    (suite,) = JUnitXml.fromstring(JUnitReport().render(SUITE).encode())
    first, second = [(one.name, one.value) for one in suite.properties()]
    assert first[1].startswith("another system prompt: expected 'You find orders.', got ")
    assert second == ("offbook.change", MODEL_CHANGE)


def test_ctrf_and_json_have_the_changes():
    extra = json.loads(CtrfReport().render(SUITE))["results"]["extra"]
    assert extra["changes"][1:] == [MODEL_CHANGE]
    report = json.loads(JsonReport().render(SUITE))
    assert [(one["what"], one["level"]) for one in report["changes"]] == [
        ("system", "shown"),
        ("model", "shown"),
    ]


def test_a_tap_parser_reads_the_changes_as_comments(npm_parsers: Path):
    command = [npm_parsers / "tap-parser", "--strict", "-j", "0"]
    text = TapReport().render(SUITE).encode()
    process = subprocess.run(command, input=text, capture_output=True, check=False)
    comments = [value[1] for value in json.loads(process.stdout) if value[0] == "comment"]
    assert f"# changed: {MODEL_CHANGE}\n" in comments


def test_a_suite_has_the_changes_of_its_trace_and_of_the_tools_that_ran():
    events = [
        Event(1, "model.change", {"what": "history", "level": "allowed"}),
        Event(2, "model.change", {"what": "model", "expected": "a", "got": "b"}),
        Event(3, "tool.call", {"call_id": "1", "tool": "t", "input": {"n": 7}, "observed": True}),
        Event(4, "tool.start", {"call_id": "1", "tool": "t", "input": {"n": 9}}),
        Event(5, "tool.start", {"call_id": "", "tool": "t", "input": {"n": 8}}),
    ]
    assert [(one.what, one.got) for one in collect_suite(events, "run").changes] == [
        ("model", "b"),
        ("unasked", 't({"n":8})'),
        ("input", 't({"n":9})'),
    ]


def test_an_empty_suite_is_not_green_in_any_format():
    empty = Suite("empty", ())
    assert not empty.green
    assert 'tests="0"' in JUnitReport().render(empty)
    assert TapReport().render(empty) == "TAP version 14\n1..0 # no assertions\n"
    assert json.loads(CtrfReport().render(empty))["results"]["summary"]["tests"] == 0
    assert json.loads(JsonReport().render(empty))["green"] is False


def test_two_verdicts_of_one_kind_have_different_names():
    def verdict(status: str) -> Event:
        return Event(5, "check.verdict", {"check": "exit_code", "status": status})

    suite = collect_suite([verdict("pass"), verdict("fail"), verdict("no_data")], "run")
    assert [(case.name, case.status) for case in suite.cases] == [
        ("1 exit_code", "passed"),
        ("2 exit_code", "failed"),
        ("3 exit_code", "failed"),
    ]
    assert not suite.green


STARTED, ENDED = Event(1, RUN_START, {"subject": "x"}), Event(2, RUN_END, {"ok": True})
FAILED = Event(2, RUN_END, {"ok": False, "error": "TypeError: no"})
PASSED = Event(2, VERDICT, {"check": "playbook consumed", "status": "pass"})
WRONG = Event(2, VERDICT, {"check": "run finished", "status": "fail", "message": "late"})


@pytest.mark.parametrize(
    "events, statuses",
    [
        ([STARTED, PASSED, ENDED], ["passed"]),
        ([STARTED, PASSED], ["passed", "error"]),
        ([STARTED, PASSED, ENDED, STARTED], ["passed", "error"]),
        ([STARTED, STARTED, ENDED, PASSED], ["passed", "error"]),
        ([ENDED, STARTED, PASSED], ["passed", "error"]),
        ([STARTED, PASSED, FAILED], ["passed", "error"]),
        ([STARTED, WRONG, FAILED], ["failed"]),
        ([STARTED], ["error"]),
    ],
)
def test_a_run_that_did_not_finish_is_a_case(events: list[Event], statuses: list[str]):
    suite = collect_suite(events, "run")
    assert [case.status for case in suite.cases] == statuses
    assert suite.green == (statuses == ["passed"])


@given(st.text(), st.text())
def test_junit_can_be_parsed_with_any_text(name: str, message: str):
    suite = Suite(name, (Case(name, "failed", 0, message, name, message),))
    text = JUnitReport().render(suite)
    [parsed] = list(JUnitXml.fromstring(text.encode()))
    assert flat(parsed.name) == flat(remove_invalid(name))


@given(st.text(st.characters()), st.text(st.characters()))  # with lone surrogates
def test_ctrf_and_json_are_valid_json_with_any_text(name: str, message: str):
    suite = Suite(name, (Case(name, "error", 0, message, name, message),))
    for report in (CtrfReport(), JsonReport()):
        read: Any = json.loads(report.render(suite))
        assert read


@pytest.mark.parametrize("report", [JUnitReport(), TapReport(), CtrfReport(), JsonReport()])
def test_a_trace_path_with_invalid_utf8_is_reported(report: Report):
    suite = collect_suite(
        [Event(1, "check.verdict", {"check": "x", "status": "pass"})], "s", trace="\udcff/a"
    )
    assert "?/a" in report.render(suite).encode().decode()


@given(st.text(), st.text())
def test_tap_has_one_line_per_case_with_any_text(name: str, message: str):
    suite = Suite("s", (Case(name, "failed", 0, message), Case(name, "skipped", 0, message)))
    lines = TapReport().render(suite).split("\n")
    assert [line.split(" ")[0] for line in lines if re.match(r"(not )?ok ", line)] == ["not", "ok"]


def test_the_same_results_give_the_same_bytes():
    for report in (JUnitReport(), TapReport(), CtrfReport(), JsonReport()):
        assert report.render(SUITE) == report.render(SUITE)


OTHER = Suite("another", (Case("1 exit_code", "failed", 0, "no", 0, 1), Case("2 x", "passed")))


def test_several_suites_are_rendered_together(npm_parsers: Path):
    expected = [*names_and_statuses(SUITE), *names_and_statuses(OTHER)]
    assert from_junit(JUnitReport().render(SUITE, OTHER)) == expected
    assert from_ctrf(CtrfReport().render(SUITE, OTHER)) == without_errors(expected)
    named = [
        (f"{flat(suite.name)}: {name}", status)
        for suite in (SUITE, OTHER)
        for name, status in names_and_statuses(suite)
    ]
    assert from_tap(TapReport().render(SUITE, OTHER), npm_parsers) == without_errors(named)
    data = json.loads(JsonReport().render(SUITE, OTHER))
    assert [suite["tests"] for suite in data["suites"]] == [len(SUITE.cases), 2]
    assert (data["tests"], data["green"]) == (len(SUITE.cases) + 2, False)


@pytest.mark.external
def test_several_suites_are_valid_according_to_the_schemas(shared_data: Path):
    schema = etree.XMLSchema(etree.parse(shared_data / JUNIT_XSD))
    text = JUnitReport().render(SUITE, OTHER).encode()
    document = etree.parse(io.BytesIO(text), etree.XMLParser(huge_tree=True))
    assert schema.validate(document), schema.error_log
    published = json.loads((shared_data / CTRF_SCHEMA).read_text())
    jsonschema.Draft7Validator(published).validate(json.loads(CtrfReport().render(SUITE, OTHER)))
