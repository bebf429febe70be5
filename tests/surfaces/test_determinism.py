"""`offbook determinism` tells what agrees, and what does not."""

from pathlib import Path

import msgspec
import pytest

from offbook.sources.server.server import Server
from tests.sources.cassette.conversations import Counting
from tests.surfaces.conftest import Offbook

PRINTS = "print(list({'one', 'two', 'three', 'four'}))"


def test_the_command_tells_what_agrees_and_what_does_not(tmp_path: Path, offbook_command: Offbook):
    (tmp_path / "same.py").write_text("print('hello')")
    (tmp_path / "other.py").write_text(PRINTS)
    (tmp_path / "failing.py").write_text("raise SystemExit(3)")
    same = offbook_command("determinism", tmp_path / "same.py", "--runs", 3, "--freeze-clock")
    assert (same.code, "3 passes are equal (0 exchanges)" in same.out) == (0, True)
    failing = offbook_command("determinism", tmp_path / "failing.py")
    assert (failing.code, "each exited with 3" in failing.out) == (1, True)
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        options = ("--upstream", url, "--runs", 4)
        other = offbook_command("determinism", tmp_path / "other.py", *options)
    assert (other.code, "at stdout line 1:" in other.out) == (1, True)
    told = offbook_command("determinism", tmp_path / "same.py", "--json")
    assert msgspec.json.decode(told.out)["divergences"] == []


COUNTED = "import os\nn = int(os.environ['PYTHONHASHSEED'])\n"  # another number in every pass


@pytest.mark.parametrize(
    "code, told",
    [
        ("print('x' * 99 + '\\n' * 1, end='')\nprint('y' * 200_000)\nprint(n)", "stdout 3:"),
        ("print('a'); print('b'); print(n)", "stdout 3:\n  before: a\n  before: b\n  pass 1: 0\n"),
        ("print('long ' * 99 + 'z' * n)", "pass 2: long …"),
        ("print('same')\nif n: print('more')", "  pass 1: nothing\n  pass 2: more\n"),
        (
            "raise SystemExit(n)",
            "differs from pass 1 in its exit code:\n  pass 1: 0\n  pass 2: 1\n",
        ),
    ],
    ids=["after much", "with context", "a longer line", "a line more", "exit code"],
)
def test_the_first_thing_that_differs_is_named(
    tmp_path: Path, offbook_command: Offbook, code: str, told: str
):
    (tmp_path / "other.py").write_text(COUNTED + code)
    done = offbook_command("determinism", tmp_path / "other.py")
    assert done.code == 1
    assert told in done.out
