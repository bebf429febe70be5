"""One runner of commands: `run`, `replay` and `drive` end in a rehearsal with the same verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offbook import Cassette, drive
from offbook.errors import CheckFailed
from offbook.runs import run_command
from offbook.sources.cassette import Recording
from offbook.surfaces.cli import main
from offbook.trace import Events, Trace
from tests.forked import forked_command
from tests.runs.echo_subject import Echo
from tests.sources.cassette.conversations import Counting

ASK = """
import json, os, sys, urllib.request
for text in sys.argv[2:]:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    try:
        urllib.request.urlopen(urllib.request.Request(url, body))
    except urllib.error.HTTPError:
        pass
sys.exit(int(sys.argv[1]))
"""
BOTH = ("first", "second")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A playbook, mocks and a cassette with the same two replies."""
    folder = tmp_path_factory.mktemp("scripts")
    files = {"playbook": folder / "p.yaml", "mocks": folder / "m.jsonl"}
    lines = [f"- {{when: {prompt}, do: [say: yes]}}\n" for prompt in BOTH]
    files["playbook"].write_text("".join(lines))
    lines = [json.dumps({"match": f"*{prompt}*", "text": "yes"}) + "\n" for prompt in BOTH]
    files["mocks"].write_text("".join(lines))
    with Recording(Counting(), folder / "c.yaml") as recording:
        run_command(recording, asking(0, *BOTH), echo=False).raise_failure()
    return {**files, "cassette": folder / "c.yaml", "replay": folder / "c.yaml"}


def asking(code: int, *prompts: str) -> list[str]:
    return forked_command("-c", ASK, code, *prompts)


def run(command: str, script: Path, *words: str) -> int:
    """Return the exit code of `offbook run` or `offbook replay` with this script."""
    first = ["replay", str(script)] if command == "replay" else ["run", "--script", str(script)]
    with pytest.raises(SystemExit) as exit_:
        main([*first, *words])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


ENDINGS = {
    "all of it": (asking(0, *BOTH), 0, ""),
    "an exit code": (asking(3, *BOTH), 1, "the command failed with exit code 3"),
    "an unused rest": (asking(0, "first"), 1, "unused|never used|remaining"),
    "no request": (asking(0), 1, "unused|no request|remaining"),
    "another request": (
        asking(0, "first", "third"),
        1,
        "Replay mismatch|no mock matched|does not match",
    ),
}


@pytest.mark.parametrize("kind", ["playbook", "mocks", "cassette", "replay"])
@pytest.mark.parametrize("command, code, message", ENDINGS.values(), ids=ENDINGS)
def test_every_kind_of_script_has_the_same_verdicts(
    scripts: dict[str, Path],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
    command: list[str],
    code: int,
    message: str,
):
    trace = tmp_path / "t.jsonl"
    assert run(kind, scripts[kind], "--trace", str(trace), "--", *command) == code
    err = capfd.readouterr().err
    if code:
        assert any(part in err for part in message.split("|")), err
    verdicts = Events(Trace(trace)).verdicts
    assert all(verdict.holds for verdict in verdicts) is not bool(code)


@pytest.mark.parametrize("kind", ["playbook", "replay"])
@pytest.mark.parametrize("code", [0, 3])
def test_the_result_of_a_run_is_printed_as_json(
    scripts: dict[str, Path], capfd: pytest.CaptureFixture[str], kind: str, code: int
):
    failed = int(code != 0)
    assert run(kind, scripts[kind], "--json", "--", *asking(code, *BOTH)) == failed
    printed: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert (printed["ok"], printed["exit_code"]) == (not code, code)
    assert ("failed with exit code 3" in (printed["error"] or "")) is bool(code)
    assert [verdict["status"] for verdict in printed["verdicts"]] == (
        ["error"] if code else ["pass"]
    )


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    """A cassette with both prompts of an agent in this process."""
    path = tmp_path / "c.yaml"
    with Recording(Counting(), path) as recording, drive(Echo(), source=recording) as rehearsal:
        for prompt in BOTH:
            rehearsal.run(prompt)
    return path


def test_an_agent_that_leaves_a_part_of_a_cassette_fails(cassette: Path):
    rehearsal = drive(Echo(), source=Cassette(cassette))
    rehearsal.run("first")
    with pytest.raises(CheckFailed, match="1 of 2 interactions unused"):
        rehearsal.dispose()


def test_a_loose_replay_in_a_rehearsal_reports_its_drift(cassette: Path):
    with drive(Echo(), source=Cassette(cassette, strict=False)) as rehearsal:
        for prompt in ("first", "third"):
            rehearsal.run(prompt)
    drift = [event.data["interaction"] for event in rehearsal.events.all if "drift" in event.event]
    assert drift == [2]
    assert [verdict.status for verdict in rehearsal.events.verdicts] == ["warn"]
