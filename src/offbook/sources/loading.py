"""The source in a file: mocks, a cassette or a playbook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from offbook.errors import FormatError
from offbook.files import read_text
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.replay import Cassette
from offbook.sources.mocks.mock_file import read_mocks
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.playbook import Playbook
from offbook.sources.playbook.script_files import read_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from offbook.exchange.model import ModelSource

PLAYBOOKS = {".py", ".yaml", ".yml", ".json"}
INTERACTIONS = re.compile(r"^(?:\{\s*)?[\"']?interactions[\"']?:", re.MULTILINE)


def open_source(path: Path) -> Callable[[], ModelSource]:
    """Makes the source in a file, as often as it is needed: mocks, a cassette or a playbook."""
    if path.suffix == ".jsonl":
        mocks = read_mocks(path)
        return lambda: Mocks(mocks)
    if path.suffix in PLAYBOOKS:
        return _open_cassette(path) if _is_cassette(path) else _open_playbook(path)
    raise FormatError(
        f"what is a {path.suffix or 'file without an ending'}?",
        path=path,
        hint="mocks are a .jsonl file, a cassette a .yaml, a playbook a .py, .yaml or .json",
    )


def _is_cassette(path: Path) -> bool:
    return path.suffix != ".py" and INTERACTIONS.search(read_text(path)) is not None


def _open_cassette(path: Path) -> Callable[[], ModelSource]:
    tape = load_cassette(path)
    return lambda: Cassette(tape)


def _open_playbook(path: Path) -> Callable[[], ModelSource]:
    script = read_script(path)

    def make() -> Playbook:
        playbook = Playbook(follow_prompts=True)
        playbook.load(*script)
        return playbook

    return make
