"""Real command-line agents, recorded once against a script and replayed."""

from __future__ import annotations

from pathlib import Path

from offbook import Cassette, Playbook, Recording, call, drive, say, when
from offbook.sources.cassette import load_cassette
from offbook.trace.redaction import preset_for_command
from tests.clients import Shell

PROMPT = "Write a file"
COMMAND = "echo it works > out.txt; cat out.txt"


def replay_client(shell: Shell, folder: Path, replays: int) -> int:
    """Record a client that writes a file with its own shell; return how many replays passed.

    A replay that differs raises.
    """
    playbook, path, work = Playbook(), folder / "tape.yaml", folder / "work"
    playbook.load(when(PROMPT, [call(shell.tool, shell.params(COMMAND)), say("Done.")]))
    work.mkdir()
    presets = {"presets": list(preset_for_command([shell.client.program]))}
    with (
        Recording(playbook, path, tracks="all", redactions=presets) as source,
        drive(shell.start(), source=source, cwd=work) as rehearsal,
    ):
        rehearsal.run(PROMPT)
    assert "out.txt" in [file.file for item in load_cassette(path) for file in item.files]
    passed = 0
    for _ in range(replays):
        (work / "out.txt").unlink()
        tape = Cassette(path, tracks="all")
        with drive(shell.start(), source=tape, cwd=work) as rehearsal:
            rehearsal.run(PROMPT)
        passed += tape.verdict().status == "pass"
    return passed
