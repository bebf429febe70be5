"""Opens the source in a file by its type: mocks, a cassette or a playbook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from offbook.errors import FormatError
from offbook.files import read_text

# The code of a source is imported when a file needs it: a server starts 15 ms earlier.
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from offbook.exchange.model import ModelSource
    from offbook.sources.playbook.playbook import Playbook

SCRIPT_SUFFIXES = {".py", ".yaml", ".yml", ".json"}
_INTERACTIONS_KEY = re.compile(r"^(?:\{\s*)?[\"']?interactions[\"']?:", re.MULTILINE)


def open_source(path: Path) -> Callable[[], ModelSource]:
    """Read a file, and return a function that makes its source, once for each run.

    The file is read and checked now, so that an error appears before a run starts.
    """
    if path.suffix == ".jsonl":
        from offbook.sources.mocks.mock_file import read_mocks
        from offbook.sources.mocks.mocks import Mocks

        mocks = read_mocks(path)
        return lambda: Mocks(mocks)
    if path.suffix not in SCRIPT_SUFFIXES:
        raise FormatError(
            f"unsupported file type {path.suffix!r}" if path.suffix else "file without a suffix",
            path=path,
            hint="mocks are a .jsonl file, a cassette a .yaml, a playbook a .py, .yaml or .json",
        )
    # A cassette and a playbook may both be YAML: only a cassette has interactions.
    if path.suffix != ".py" and _INTERACTIONS_KEY.search(read_text(path)):
        from offbook.sources.cassette.journal import load_cassette
        from offbook.sources.cassette.replay import Cassette

        file = load_cassette(path)
        return lambda: Cassette(file)
    from offbook.sources.playbook.playbook import Playbook
    from offbook.sources.playbook.script_files import read_script

    script = read_script(path)

    def make_playbook() -> Playbook:
        playbook = Playbook()
        playbook.load(*script)
        return playbook

    return make_playbook
