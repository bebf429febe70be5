"""Each behaviour of the original test harness, and where real pi is tested for it."""

from pathlib import Path

import pytest

# The names of tests contain the ids: test_p3_p8_… has P3 and P8.
ON_PI = {
    *("P3", "P4", "P5", "P6", "P7", "P8", "P9"),
    *("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8"),
    *("F1", "F2", "F3", "F4", "F11"),
    *("K1", "K2", "K3", "K4", "K5"),
}
# No part of it runs in pi. tests/subjects/session/test_upstream.py and tests/sources/playbook
# have these.
NOT_IN_PI = {
    **dict.fromkeys(["P1", "P2"], "the builders of a script: no agent runs"),
    **dict.fromkeys(["F5", "F6", "F7", "F8", "F9", "F10", "F12"], "an exception class in Python"),
    **{f"F{number}": "the deletion of a folder" for number in range(13, 20)},
    "K6": "extension.ts itself has a top-level await: every test with pi loads it",
}
LENGTHS = {"P": 9, "S": 8, "F": 19, "K": 6}


def test_the_table_has_every_behaviour():
    expected = {f"{group}{n}" for group, count in LENGTHS.items() for n in range(1, count + 1)}
    assert ON_PI | NOT_IN_PI.keys() == expected
    assert not ON_PI & NOT_IN_PI.keys()


@pytest.mark.parametrize("behaviour", sorted(ON_PI))
def test_a_behaviour_has_a_test_with_its_id(behaviour: str):
    folder = Path(__file__).parent
    names = [
        line.partition("def test_")[2].partition("(")[0]
        for file in ("test_conformance.py", "test_pi.py")
        for line in (folder / file).read_text().splitlines()
        if line.startswith("def test_")
    ]
    assert [name for name in names if behaviour.lower() in name.split("_")]


def test_the_extension_has_a_top_level_await():
    assert "\nawait " in Path(__file__).with_name("extension.ts").read_text()
