"""Fixture files are read and written; errors name the file and the line."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.goldens import GoldenFixture, MatchRule, read_scenarios, write_fixture

GOOD: dict[str, Any] = {
    "sessionId": "s",
    "scenario": "basic",
    "steps": [{"type": "send", "message": "m"}],
    "expect": {"events": []},
}


def to_jsonl(*changes: dict[str, Any]) -> str:
    return "".join(msgspec.json.encode({**GOOD, **change}).decode() + "\n" for change in changes)


def fixture_without(key: str) -> str:
    return msgspec.json.encode({k: v for k, v in GOOD.items() if k != key}).decode() + "\n"


def test_file_may_have_several_scenarios(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(to_jsonl({}, {"scenario": "basic-2"}, {"scenario": "basic-3"}) + "\n")
    assert [(each.fixture.scenario, each.line) for each in read_scenarios(path)] == [
        ("basic", 1),
        ("basic-2", 2),
        ("basic-3", 3),
    ]


BROKEN = {
    "empty": ("", 1, "empty fixture file"),
    "blank lines": ("\n\n", 1, "empty fixture file"),
    "bad JSON": (to_jsonl({}) + "{oops\n", 2, "invalid JSON"),
    "torn line": (to_jsonl({}) + to_jsonl({})[:40], 2, "invalid JSON"),
    "no expect": (to_jsonl({}) + fixture_without("expect"), 2, "missing key 'expect'"),
    "no steps": (fixture_without("steps"), 1, "missing key 'steps'"),
    "no session": (fixture_without("sessionId"), 1, "missing key 'sessionId'"),
    "unknown key": (to_jsonl({"senario": "x"}), 1, "did you mean 'scenario'"),
    "step without type": (to_jsonl({"steps": [{"typ": "send"}]}), 1, "step 1 has no type"),
    "step is not an object": (to_jsonl({"steps": ["send"]}), 1, "expected a mapping"),
    "duplicate name": (to_jsonl({}, {}), 2, "duplicate scenario 'basic'"),
    "list": ("[]\n", 1, "expected a mapping"),
}


@pytest.mark.parametrize("text, line, message", BROKEN.values(), ids=BROKEN)
def test_invalid_file_is_reported_with_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
):
    path = tmp_path / "basic.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError) as raised:
        read_scenarios(path)
    assert message in str(raised.value)
    assert (raised.value.path, raised.value.line) == (str(path), line)


def test_newer_version_is_refused(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(to_jsonl({"version": 3}))
    with pytest.raises(FormatError, match="upgrade Offbook"):
        read_scenarios(path)


def test_missing_file_is_reported(tmp_path: Path):
    with pytest.raises(FormatError, match=r"none\.jsonl"):
        read_scenarios(tmp_path / "none.jsonl")


def rule_of(path: Path) -> MatchRule:
    return read_scenarios(path)[0].rule


def test_rule_is_exact_without_sidecar(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(to_jsonl({}))
    assert rule_of(path) == MatchRule("exact", "*", None)


def test_sidecar_sets_rule_of_file_and_of_scenarios(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(to_jsonl({}, {"scenario": "basic-2"}))
    path.with_name("basic.match.json").write_text(
        '{"match": "prefix", "filter": ["a:*"], "scenarios": {"basic-2": {"match": "subset"}}}'
    )
    first, second = read_scenarios(path)
    assert first.rule == MatchRule("prefix", ["a:*"])
    assert second.rule == MatchRule("subset")


def test_manifest_of_parent_folder_applies_without_sidecar(tmp_path: Path):
    path = tmp_path / "golden" / "hub" / "basic.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(to_jsonl({}))
    (tmp_path / "MANIFEST.json").write_text(
        '{"origin": "o", "fixtures": [{"file": "golden/hub/basic.jsonl", "match": "subset"}]}'
    )
    assert rule_of(path).match == "subset"
    path.with_name("basic.match.json").write_text('{"match": "prefix"}')
    assert rule_of(path).match == "prefix"


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"match": "roughly"}', "invalid value .roughly"),
        ('{"mach": "exact"}', "did you mean 'match'"),
        ('{"scenarios": {"basik": {}}}', "did you mean 'basic'"),
        ("", "invalid JSON"),
    ],
)
def test_invalid_sidecar_is_reported(tmp_path: Path, text: str, message: str):
    path = tmp_path / "basic.jsonl"
    path.write_text(to_jsonl({}))
    path.with_name("basic.match.json").write_text(text)
    with pytest.raises(FormatError, match=message) as raised:
        read_scenarios(path)
    assert "basic.match.json" in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.builds(
        GoldenFixture,
        session_id=st.text(),
        scenario=st.text(),
        steps=st.lists(st.fixed_dictionaries({"type": st.text()}, optional={"event": JSON})),
        expect=st.dictionaries(st.text(), JSON, max_size=3),
        metadata=st.dictionaries(st.text(), JSON, max_size=3),
    ),
    st.builds(
        MatchRule,
        match=st.sampled_from(["exact", "prefix", "subset"]),
        filter=st.text() | st.lists(st.text(), max_size=2),
        unsubscribe_after_step=st.none() | st.integers(0, 9),
    ),
)
def test_written_fixture_is_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, fixture: GoldenFixture, rule: MatchRule
):
    path = tmp_path_factory.mktemp("f") / "basic.jsonl"
    write_fixture(path, fixture, rule)
    (scenario,) = read_scenarios(path)
    assert (scenario.fixture, scenario.rule) == (fixture, rule)
