"""The same results, told in every format, are read alike by other people's parsers."""

from __future__ import annotations

import io
import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.reports.ctrf import CtrfReport
from offbook.reports.json_report import JsonReport
from offbook.reports.junit import JUnitReport, clean
from offbook.reports.report import Attempt, Case, Report, Suite, collect_suite
from offbook.reports.tap import TapReport
from offbook.trace.events import Event

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
)
# These have no types, or half of them: they are somebody else's, and only read here.
etree: Any = import_module("lxml.etree")
jsonschema: Any = import_module("jsonschema")
JUnitXml: Any = import_module("junitparser").JUnitXml
JUNIT_XSD = "formats/jenkins-xunit-junit-10.xsd"
CTRF_SCHEMA = "formats/ctrf-schema-0.0.npm-0.3.0.json"


def flat(name: str) -> str:
    """A name as far as every format can say it."""
    return re.sub(r"\s+", " ", re.sub(r"[\x00-\x08\x0e-\x1f]", "", name)).strip()


def told(suite: Suite) -> list[tuple[str, str]]:
    return [(flat(case.name), case.status) for case in suite.cases]


def from_junit(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
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
            found.append((flat(case.name), status))
    return found


def from_tap(text: str, commands: Path) -> list[tuple[str, str]]:
    """What the reference parser reads, in its strict mode."""
    done = subprocess.run(
        [commands / "tap-parser", "--strict", "-j", "0"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    found: list[tuple[str, str]] = []
    for kind, *values in json.loads(done.stdout):
        value: Any = values[0] if values else None
        assert kind != "extra", value
        if kind == "complete":
            assert not [f for f in value["failures"] if f.get("tapError")]
        if kind == "assert":
            status = "skipped" if value.get("skip") else "passed" if value["ok"] else "failed"
            found.append((flat(value["name"]), status))
    return found


def from_ctrf(text: str) -> list[tuple[str, str]]:
    return [(flat(test["name"]), test["status"]) for test in json.loads(text)["results"]["tests"]]


def merged(cases: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """TAP and CTRF have one word for a failure and an error."""
    return [(name, "failed" if status == "error" else status) for name, status in cases]


def test_junit_is_read_as_it_was_meant():
    assert from_junit(JUnitReport().render(SUITE)) == told(SUITE)


@pytest.mark.external
def test_junit_is_valid_by_the_schema_of_jenkins(shared_data: Path):
    schema = etree.XMLSchema(etree.parse(shared_data / JUNIT_XSD))
    document = etree.parse(
        io.BytesIO(JUnitReport().render(SUITE).encode()), etree.XMLParser(huge_tree=True)
    )
    assert schema.validate(document), schema.error_log


def test_tap_is_read_as_it_was_meant(npm_parsers: Path):
    assert from_tap(TapReport().render(SUITE), npm_parsers) == merged(told(SUITE))


def test_ctrf_is_read_as_it_was_meant():
    assert from_ctrf(CtrfReport().render(SUITE)) == merged(told(SUITE))


@pytest.mark.external
def test_ctrf_is_valid_by_its_schema_and_counts_right(shared_data: Path):
    report = json.loads(CtrfReport().render(SUITE))
    jsonschema.Draft7Validator(json.loads((shared_data / CTRF_SCHEMA).read_text())).validate(report)
    summary = report["results"]["summary"]
    assert summary["tests"] == len(SUITE.cases)
    assert summary["passed"] + summary["failed"] + summary["skipped"] == summary["tests"]


def test_a_flaky_case_is_marked_in_every_format():
    assert "flakyFailure" in JUnitReport().render(SUITE)
    assert "flaky: true" in TapReport().render(SUITE)
    flaky = [
        t for t in json.loads(CtrfReport().render(SUITE))["results"]["tests"] if t.get("flaky")
    ]
    assert [test["retries"] for test in flaky] == [1]
    assert json.loads(JsonReport().render(SUITE))["flaky"] is True


def test_a_failure_carries_what_was_expected_and_what_came():
    for report in (JUnitReport(), TapReport(), CtrfReport(), JsonReport()):
        text = report.render(SUITE)
        assert "a" in text
        assert "expected" in text


def test_nothing_checked_is_not_green_anywhere():
    empty = Suite("empty", ())
    assert not empty.green
    assert 'tests="0"' in JUnitReport().render(empty)
    assert TapReport().render(empty) == "TAP version 14\n1..0 # no assertions\n"
    assert json.loads(CtrfReport().render(empty))["results"]["summary"]["tests"] == 0
    assert json.loads(JsonReport().render(empty))["green"] is False


def test_two_verdicts_of_one_kind_have_names_of_their_own():
    def verdict(status: str) -> Event:
        return Event(5, "check.verdict", {"check": "exit_code", "status": status})

    suite = collect_suite([verdict("pass"), verdict("fail"), verdict("no_data")], "run")
    assert [(case.name, case.status) for case in suite.cases] == [
        ("1 exit_code", "passed"),
        ("2 exit_code", "failed"),
        ("3 exit_code", "failed"),
    ]
    assert not suite.green


@given(st.text(), st.text())
def test_junit_can_be_parsed_whatever_is_in_it(name: str, message: str):
    suite = Suite(name, (Case(name, "failed", 0, message, name, message),))
    text = JUnitReport().render(suite)
    [found] = list(JUnitXml.fromstring(text.encode()))
    assert flat(found.name) == flat(clean(name))


@given(st.text(st.characters()), st.text(st.characters()))  # half characters, too
def test_ctrf_and_data_are_json_whatever_is_in_them(name: str, message: str):
    suite = Suite(name, (Case(name, "error", 0, message, name, message),))
    for report in (CtrfReport(), JsonReport()):
        read: Any = json.loads(report.render(suite))
        assert read


@pytest.mark.parametrize("report", [JUnitReport(), TapReport(), CtrfReport(), JsonReport()])
def test_a_trace_whose_path_is_no_text_is_told_all_the_same(report: Report):
    suite = collect_suite(
        [Event(1, "check.verdict", {"check": "x", "status": "pass"})], "s", trace="\udcff/a"
    )
    assert "?/a" in report.render(suite).encode().decode()


@given(st.text(), st.text())
def test_tap_has_one_line_for_each_case_whatever_is_in_it(name: str, message: str):
    suite = Suite("s", (Case(name, "failed", 0, message), Case(name, "skipped", 0, message)))
    lines = TapReport().render(suite).split("\n")
    assert [line.split(" ")[0] for line in lines if re.match(r"(not )?ok ", line)] == ["not", "ok"]


def test_the_same_results_give_the_same_bytes():
    for report in (JUnitReport(), TapReport(), CtrfReport(), JsonReport()):
        assert report.render(SUITE) == report.render(SUITE)


OTHER = Suite("another", (Case("1 exit_code", "failed", 0, "no", 0, 1), Case("2 x", "passed")))


def test_several_suites_are_told_together(npm_parsers: Path):
    wanted = [*told(SUITE), *told(OTHER)]
    assert from_junit(JUnitReport().render(SUITE, OTHER)) == wanted
    assert from_ctrf(CtrfReport().render(SUITE, OTHER)) == merged(wanted)
    named = [
        (f"{flat(suite.name)}: {name}", status)
        for suite in (SUITE, OTHER)
        for name, status in told(suite)
    ]
    assert from_tap(TapReport().render(SUITE, OTHER), npm_parsers) == merged(named)
    data = json.loads(JsonReport().render(SUITE, OTHER))
    assert [suite["tests"] for suite in data["suites"]] == [len(SUITE.cases), 2]
    assert (data["tests"], data["green"]) == (len(SUITE.cases) + 2, False)


@pytest.mark.external
def test_several_suites_are_valid_by_the_schemas(shared_data: Path):
    schema = etree.XMLSchema(etree.parse(shared_data / JUNIT_XSD))
    text = JUnitReport().render(SUITE, OTHER).encode()
    document = etree.parse(io.BytesIO(text), etree.XMLParser(huge_tree=True))
    assert schema.validate(document), schema.error_log
    published = json.loads((shared_data / CTRF_SCHEMA).read_text())
    jsonschema.Draft7Validator(published).validate(json.loads(CtrfReport().render(SUITE, OTHER)))
