"""Fixture files: what is in them is understood, what is wrong with them is told with its line."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError, FutureVersion
from offbook.goldens.fixture_store import GoldenFixture, MatchRule, read_scenarios, write_fixture

GOOD: dict[str, Any] = {
    "sessionId": "s",
    "scenario": "basic",
    "steps": [{"type": "send", "message": "m"}],
    "expect": {"events": []},
}


def spell(*changes: dict[str, Any]) -> str:
    return "".join(msgspec.json.encode({**GOOD, **change}).decode() + "\n" for change in changes)


def without(key: str) -> str:
    return msgspec.json.encode({k: v for k, v in GOOD.items() if k != key}).decode() + "\n"


def test_a_file_may_hold_several_scenarios(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(spell({}, {"scenario": "basic-2"}, {"scenario": "basic-3"}) + "\n")
    assert [(one.fixture.scenario, one.line) for one in read_scenarios(path)] == [
        ("basic", 1),
        ("basic-2", 2),
        ("basic-3", 3),
    ]


BROKEN = {
    "nothing": ("", 1, "the fixture is empty"),
    "blank lines": ("\n\n", 1, "the fixture is empty"),
    "bad JSON": (spell({}) + "{oops\n", 2, "invalid JSON"),
    "half a line": (spell({}) + spell({})[:40], 2, "invalid JSON"),
    "no expect": (spell({}) + without("expect"), 2, "missing required field `expect`"),
    "no steps": (without("steps"), 1, "missing required field `steps`"),
    "no session": (without("sessionId"), 1, "missing required field `sessionId`"),
    "an unknown key": (spell({"senario": "x"}), 1, "did you mean 'scenario'"),
    "a step without a type": (spell({"steps": [{"typ": "send"}]}), 1, "step 1 has no type"),
    "a step that is no object": (spell({"steps": ["send"]}), 1, "Expected `object`"),
    "the same name twice": (spell({}, {}), 2, "a second scenario is called 'basic'"),
    "a list": ("[]\n", 1, "Expected `object`"),
}


@pytest.mark.parametrize("text, line, message", BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_is_told_with_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
):
    path = tmp_path / "basic.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError) as raised:
        read_scenarios(path)
    assert message in str(raised.value)
    assert (raised.value.path, raised.value.line) == (str(path), line)


def test_a_fixture_of_the_future_is_refused_politely(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(spell({"version": 2}))
    with pytest.raises(FutureVersion, match="upgrade Offbook"):
        read_scenarios(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(FormatError, match="cannot be read"):
        read_scenarios(tmp_path / "none.jsonl")


def rule_of(path: Path) -> MatchRule:
    return read_scenarios(path)[0].rule


def test_without_a_sidecar_a_fixture_is_compared_exactly(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(spell({}))
    assert rule_of(path) == MatchRule("exact", "*", None)


def test_a_sidecar_says_how_a_file_is_compared_and_each_scenario_of_it(tmp_path: Path):
    path = tmp_path / "basic.jsonl"
    path.write_text(spell({}, {"scenario": "basic-2"}))
    path.with_name("basic.match.json").write_text(
        '{"match": "prefix", "filter": ["a:*"], "scenarios": {"basic-2": {"match": "subset"}}}'
    )
    first, second = read_scenarios(path)
    assert first.rule == MatchRule("prefix", ["a:*"])
    assert second.rule == MatchRule("subset")


def test_a_manifest_of_a_folder_above_counts_where_there_is_no_sidecar(tmp_path: Path):
    path = tmp_path / "golden" / "hub" / "basic.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(spell({}))
    (tmp_path / "MANIFEST.json").write_text(
        '{"origin": "o", "fixtures": [{"file": "golden/hub/basic.jsonl", "match": "subset"}]}'
    )
    assert rule_of(path).match == "subset"
    path.with_name("basic.match.json").write_text('{"match": "prefix"}')
    assert rule_of(path).match == "prefix"


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"match": "roughly"}', "Invalid enum value"),
        ('{"mach": "exact"}', "did you mean 'match'"),
        ('{"scenarios": {"basik": {}}}', "did you mean 'basic'"),
        ("", "invalid JSON"),
    ],
)
def test_what_is_wrong_with_a_sidecar_is_told(tmp_path: Path, text: str, message: str):
    path = tmp_path / "basic.jsonl"
    path.write_text(spell({}))
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
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, fixture: GoldenFixture, rule: MatchRule
):
    path = tmp_path_factory.mktemp("f") / "basic.jsonl"
    write_fixture(path, fixture, rule)
    (found,) = read_scenarios(path)
    assert (found.fixture, found.rule) == (fixture, rule)
