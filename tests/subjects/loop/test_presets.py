"""Presets are read as Ralph reads them: what is not ours is left alone, what is wrong is told."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.subjects.loop.config import CLASSIC, read_preset

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
OF_OTHERS = ["cli", "core", "backpressure", "hooks", "memories", "tasks", "skills", "RObot"]


@given(
    st.dictionaries(st.sampled_from(OF_OTHERS) | st.text(max_size=9), json_values),
    st.dictionaries(st.sampled_from(["idle_timeout_secs", "prompt_file", "x"]), json_values),
    st.dictionaries(st.sampled_from(["backend", "max_tokens", "disallowed_tools"]), json_values),
)
def test_what_belongs_to_other_tools_changes_nothing(
    around: dict[str, Any], loop: dict[str, Any], hat: dict[str, Any]
):
    own: dict[str, Any] = {
        "event_loop": {"max_iterations": 7, "starting_event": "work.start"},
        "hats": {"builder": {"name": "Builder", "triggers": ["work.*"], "publishes": ["done"]}},
    }
    known = {"event_loop", "hats", "max_iterations", "max_runtime_seconds", "completion_promise"}
    more = {
        **{name: value for name, value in around.items() if name not in known},
        "event_loop": {**loop, **own["event_loop"]},
        "hats": {"builder": {**hat, **own["hats"]["builder"]}},
    }
    assert read_preset(more) == read_preset(own)


@given(st.dictionaries(st.sampled_from(["event_loop", "hats", "max_iterations"]), json_values))
def test_a_preset_is_read_or_refused_and_nothing_else(source: dict[str, Any]):
    with suppress(FormatError):
        read_preset(source)


@pytest.mark.parametrize("text", ["{}\n", "cli:\n  backend: pi\n"])
def test_a_preset_without_hats_has_the_two_classic_ones(tmp_path: Any, text: str):
    path = tmp_path / "preset.yml"
    path.write_text(text)
    assert read_preset(path).hats == CLASSIC


@pytest.mark.parametrize(
    "text, told",
    [
        ("hats:\n  builder:\n    triggers: work.start\n", "preset.yml:3: Expected `array`"),
        ("hats: [builder]\n", "preset.yml:1: Expected `object"),
        ("event_loop: 7\n", "preset.yml:1: Expected `object`"),
        ("hats:\n\tbuilder: {}\n", "preset.yml:2"),
    ],
)
def test_what_is_wrong_with_a_preset_is_told_with_its_line(tmp_path: Any, text: str, told: str):
    path = tmp_path / "preset.yml"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_preset(path)
    assert told in str(caught.value)
