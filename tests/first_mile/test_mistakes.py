"""The messages of typical mistakes: each says what is wrong, where, and how to fix it."""

import os
import shlex
from pathlib import Path

import pytest

from tests.first_mile.mistakes import MISTAKES, Mistake
from tests.forked import run_python

MOST_INCOMPLETE = 4  # of all messages: what pytest and click write


def make_mistake(mistake: Mistake, folder: Path) -> tuple[int, str]:
    for name, text in mistake.files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    program, *words = shlex.split(mistake.command)
    arguments = {"offbook": ["-m", "offbook"], "pytest": ["-m", "pytest"], "python": []}[program]
    if program == "pytest":
        words += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist"]
    env = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    result = run_python(*arguments, *words, cwd=folder, env=env)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("name", MISTAKES)
def test_a_message_says_what_is_wrong_where_and_how_to_fix_it(name: str, tmp_path: Path):
    mistake = MISTAKES[name]
    code, output = make_mistake(mistake, tmp_path)
    assert code != 0
    missing = {
        part: word
        for part, word in mistake._asdict().items()
        if part in {"what", "where", "fix"} and word not in output
    }
    assert not missing, output


def test_few_messages_lack_a_part():
    incomplete = [name for name, mistake in MISTAKES.items() if "" in mistake[2:]]
    assert len(incomplete) <= MOST_INCOMPLETE
