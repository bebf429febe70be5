"""Presets are read like Ralph reads them: foreign keys are ignored, errors have their line."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError, OffbookWarning
from offbook.files import parse_yaml
from offbook.workflows import DEFAULT_HATS, FLAT_KEYS, read_preset
from tests.conftest import SHARED_DATA

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
RALPH = SHARED_DATA / "ralph"
FOREIGN_KEYS = ["cli", "core", "backpressure", "hooks", "tasks", "skills", "RObot"]


@given(
    st.dictionaries(st.sampled_from(FOREIGN_KEYS) | st.text(max_size=9), json_values),
    st.dictionaries(st.sampled_from(["idle_timeout_secs", "prompt_file", "x"]), json_values),
    st.dictionaries(st.sampled_from(["backend", "max_tokens", "disallowed_tools"]), json_values),
)
def test_keys_of_other_tools_are_ignored(
    around: dict[str, Any], loop: dict[str, Any], hat: dict[str, Any]
):
    own: dict[str, Any] = {
        "event_loop": {"max_iterations": 7, "starting_event": "work.start"},
        "hats": {"builder": {"name": "Builder", "triggers": ["work.*"], "publishes": ["done"]}},
    }
    known = {"event_loop", "hats", "memories", *FLAT_KEYS}
    more = {
        # One that resembles a key of ours is refused as a typo of it.
        **{
            n: value
            for n, value in around.items()
            if not get_close_matches(n.lower(), known, 1, 0.5)
        },
        "event_loop": {**loop, **own["event_loop"]},
        "hats": {"builder": {**hat, **own["hats"]["builder"]}},
    }
    assert read_preset(more) == read_preset(own)


@given(st.dictionaries(st.sampled_from(["event_loop", "hats", "max_iterations"]), json_values))
def test_any_value_is_read_or_raises_a_format_error(source: dict[str, Any]):  # noqa: OB101 - it must not raise
    with suppress(FormatError):
        read_preset(source)


@pytest.mark.parametrize(
    "text, line, typo, intended",
    [
        ("event_lop:\n  max_iterations: 3\n", 1, "event_lop", "event_loop"),
        ("event_loop:\n  max_iter: 3\n", 2, "max_iter", "max_iterations"),
        ("event_loop:\n  max_runtime: 3\n", 2, "max_runtime", "max_runtime_seconds"),
        ("max_runtime_secs: 3\n", 1, "max_runtime_secs", "max_runtime_seconds"),
        ("hats:\n  a:\n    triggers: [x]\n  b:\n    trigers: [x]\n", 5, "trigers", "triggers"),
        ("hats:\n  a:\n    publish: [x]\n", 3, "publish", "publishes"),
        ("memories:\n  enable: false\n", 2, "enable", "enabled"),
    ],
)
def test_a_typo_is_reported_with_its_line_and_the_nearest_key(
    tmp_path: Path, text: str, line: int, typo: str, intended: str
):
    path = tmp_path / "preset.yml"
    path.write_text(text)
    with pytest.raises(FormatError, match=rf"unknown key '{typo}'") as caught:
        read_preset(path)
    assert (caught.value.line, caught.value.hint) == (line, f"did you mean '{intended}'?")


@pytest.mark.parametrize(
    "text, line, where",
    [
        ("hats: {}\ncolour: red\n", 2, "$.colour"),
        ("event_loop:\n  colour: red\n", 2, "$.event_loop.colour"),
        ("memories:\n  colour: red\n", 2, "$.memories.colour"),
        ("hats:\n  a:\n    name: A\n    colour: red\n", 4, "$.hats.a.colour"),
        ("hats:\n  cli:\n    core: red\n", 3, "$.hats.cli.core"),  # known at the top level only
    ],
)
def test_a_key_that_resembles_none_is_a_warning_with_its_line(
    tmp_path: Path, text: str, line: int, where: str
):
    path = tmp_path / "preset.yml"
    path.write_text(text)
    with pytest.warns(OffbookWarning) as caught:
        read_preset(path)
    key = where.rpartition(".")[2]
    assert [str(warning.message) for warning in caught] == [
        f"{path}:{line}: unknown key '{key}' is ignored (at {where})"
    ]


@pytest.mark.external
def test_presets_of_ralph_are_read_without_a_warning(recwarn: pytest.WarningsRecorder):
    presets = [*RALPH.glob("presets/**/*.yml"), *RALPH.glob("ralph*.yml")]
    assert presets
    for path in presets:
        read_preset(path)
    assert list(recwarn) == []


@pytest.mark.parametrize("text", ["{}\n", "cli:\n  backend: pi\n"])
def test_a_preset_without_hats_has_planner_and_builder(tmp_path: Any, text: str):
    path = tmp_path / "preset.yml"
    path.write_text(text)
    assert read_preset(path).hats == DEFAULT_HATS


@pytest.mark.parametrize(
    "text, message",
    [
        ("hats:\n  builder:\n    triggers: work.start\n", "preset.yml:3: expected a list"),
        ("hats: [builder]\n", "preset.yml:1: expected a mapping"),
        ("event_loop: 7\n", "preset.yml:1: expected a mapping"),
        ("hats:\n\tbuilder: {}\n", "preset.yml:2"),
        ("hats:\n  builder:\n", "preset.yml:1: expected a mapping, got nothing"),
        ("event_loop:\n  max_iterations: -1\n", "preset.yml:2: expected an integer >= 0"),
        ("cli: {}\n---\nhats: {}\n", "preset.yml:2: 2 YAML documents, expected one"),
    ],
)
def test_errors_of_a_preset_have_their_line(tmp_path: Any, text: str, message: str):
    path = tmp_path / "preset.yml"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_preset(path)
    assert message in str(caught.value)


SAME = {"event_loop": {"max_iterations": 7}, "hats": {"a": {"triggers": ["work.*"]}}}
SPELLINGS = {
    "Windows line endings": "event_loop:\r\n  max_iterations: 7\r\nhats:\r\n  a:\r\n"
    "    triggers: [work.*]\r\n",
    "byte order mark": "\ufeffevent_loop: {max_iterations: 7}\nhats: {a: {triggers: [work.*]}}\n",
    "trailing empty document": "---\nevent_loop: {max_iterations: 7}\n"
    "hats: {a: {triggers: [work.*]}}\n...\n---\n# nothing\n",
    "keys without a value": "event_loop:\n  max_iterations: 7\n  starting_event:\n  prompt: ~\n"
    "  max_cost_usd: null\n  required_events:\nhats:\n  a:\n    description:\n"
    "    triggers: [work.*]\n    publishes:\n    default_publishes: null\ncli:\n",
    "merge key": "_base: &base\n  triggers: [work.*]\nevent_loop: {max_iterations: 7}\n"
    "hats:\n  a:\n    <<: *base\n",
    "first version": "max_iterations: 7\nagent: claude\nhats: {a: {triggers: [work.*]}}\n",
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_equivalent_files_give_the_same_preset(tmp_path: Path, text: str):
    path = tmp_path / "preset.yml"
    path.write_bytes(text.encode())
    assert read_preset(path) == read_preset(SAME)


def test_first_version_presets_have_their_limits_at_the_top_level():
    limits = read_preset(
        {"max_runtime": 60, "max_cost": 2, "completion_promise": "DONE"}
    ).event_loop
    assert (limits.max_runtime_seconds, limits.max_cost_usd) == (60, 2)
    assert limits.completion_promise == "DONE"


def test_explicit_keys_win_over_merged_keys():
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n"
    assert parse_yaml(text)["c"] == {"x": 3, "y": 1, "z": 2}
