"""`offbook contract` infers contracts from traces, and checks traces by them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from offbook.contracts import contract
from offbook.errors import UsageError

EVENTS = [
    {"ts": 1, "event": "bus.publish", "data": {"topic": "a.b", "payload": {"n": 1}}, "seq": 1},
    {"ts": 2, "event": "tool.call", "data": {"tool": "bash"}, "seq": 2},
]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(contract, [str(a) for a in arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.output  # pyright: ignore[reportReturnType] - of click


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in EVENTS))
    return path


def test_a_trace_matches_the_contracts_inferred_from_it(trace: Path):
    out = trace.with_name("contracts.json")
    assert run("--infer", trace, "--event", "tool.call", "--out", out)[0] == 0
    assert json.loads(out.read_text())["topics"]["a.b"]["required"] == ["n"]
    code, output = run(trace, "--contracts", out)
    assert (code, output) == (0, "2 events checked, 0 violations\n")


def test_a_violation_has_its_event_path_rule_and_value(trace: Path):
    contracts = trace.with_name("contracts.yaml")
    contracts.write_text("topics: {a.b: {properties: {n: {type: string}}}}")
    code, output = run(trace, "--contracts", contracts, "--json")
    [violation] = json.loads(output)["violations"]
    assert code == 1
    assert (violation["seq"], violation["event"]) == (1, "bus.publish")
    assert (violation["path"], violation["actual"]) == (".payload.n", 1)
    assert "string" in violation["expected"]


def test_an_unused_contract_is_not_green(trace: Path):
    contracts = trace.with_name("contracts.yaml")
    contracts.write_text("topics: {a.b: true, a.c: true}")
    code, output = run(trace, "--contracts", contracts)
    assert code == 1
    assert "topic a.c: unused, no event matched it" in output


def test_an_unknown_topic_has_the_nearest_name(trace: Path):
    contracts = trace.with_name("contracts.yaml")
    contracts.write_text("topics: {a.bb: true}")
    assert "did you mean 'a.bb'?" in run(trace, "--contracts", contracts)[1]


def test_an_event_that_no_trace_has_is_a_usage_error(trace: Path):
    with pytest.raises(UsageError, match=r"no trace has an event 'tool\.cal'"):
        run("--infer", trace, "--event", "tool.cal")


def test_traces_without_topics_are_a_usage_error(tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"ts":1,"event":"x"}\n')
    with pytest.raises(UsageError, match="publish no topic"):
        run("--infer", tmp_path / "t.jsonl")


def test_without_contracts_nothing_is_checked(trace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(trace.parent)
    with pytest.raises(UsageError, match="no contracts"):
        run(trace)


def test_traces_without_topics_have_no_contracts_to_infer(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(msgspec.json.encode(EVENTS[1]) + b"\n")
    with pytest.raises(UsageError, match="the traces publish no topic"):
        run("--infer", path)


@pytest.mark.parametrize(
    "options, message",
    [
        (("--out", "c.json"), "no effect without --infer"),
        (("--infer", "--contracts", "c.json"), "exclude each other"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    trace: Path, options: tuple[str, ...], message: str
):
    with pytest.raises(UsageError, match=message):
        run(trace, *options)
