"""A recording loses nothing, whoever dies, and there is only one at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from offbook.errors import FormatError, UsageError
from offbook.sources.cassette.editing import CassetteTitle
from offbook.sources.cassette.format import Interaction, RecordedRequest, RecordedResponse
from offbook.sources.cassette.journal import Journal, JournalMerged, journal_path, load_cassette
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from tests.sources.cassette.conversations import Counting, ask, record, record_prompts, replay


def item(identity: int, text: str) -> Interaction:
    asked = RecordedRequest(prompt_hash="sha256:aa", prompt=text)
    return Interaction(id=identity, request=asked, response=RecordedResponse(output=text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "refund.yaml"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked recorder")
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_recorder_that_is_killed_leaves_all_that_was_finished(
    tmp_path: Path, root: Path, times: int
):
    told = subprocess.run(
        [sys.executable, "-m", "tests.sources.cassette.kill_recorder", tmp_path, str(times), "7"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == f"tried {times}\n", told.stdout + told.stderr


def test_a_second_recorder_is_refused_with_the_process_of_the_first(path: Path):
    with Recording(Counting(), path), pytest.raises(UsageError, match=f"process {os.getpid()}"):
        Recording(Counting(), path)
    with Recording(Counting(), path):
        pass


def test_who_reads_while_it_is_recorded_sees_the_last_whole_one(path: Path):
    record_prompts(path, [("a", "one")])
    with Recording(Counting(), path, append=True) as recording:
        recording.output("two", RecordedResponse(output="2"), hat="a")
        assert len(load_cassette(path)) == 1
    assert len(load_cassette(path)) == 2


def test_only_its_owner_may_read_it(path: Path):
    record_prompts(path, [("a", "one")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Recording(Counting(), path, append=True):
        assert stat.S_IMODE(journal_path(path).stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_torn_line_was_never_an_interaction(path: Path):
    journal = Journal(path, CassetteTitle("refund.yaml"))
    journal.add(1, item(1, "one"))
    os.close(journal.file)  # as if the process had died here
    with journal_path(path).open("ab") as file:
        file.write(b'{"type":"finished","place":2,"interac')
    tape = load_cassette(path)
    assert [one.response.output for one in tape] == ["one"]
    assert tape.header.metadata["interrupted"] is True


def test_a_secret_that_is_one_of_our_own_words_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_TOKEN", "response")
    record_prompts(path, [("a", "the response is here")])
    (kept,) = load_cassette(path)
    assert kept.request.prompt == "the [API_KEY] is here"
    assert kept.response.output == "output 1\n"


def test_a_crash_after_the_folding_adds_nothing_twice(path: Path):
    journal = Journal(path, CassetteTitle("refund.yaml"))
    journal.add(1, item(1, "one"))
    noted = journal_path(path).read_bytes()
    journal.close()
    mark = msgspec.json.encode(JournalMerged(load_cassette(path).digest)) + b"\n"
    journal_path(path).write_bytes(noted + mark)  # as if the process had died before it tidied up
    assert [one.id for one in load_cassette(path)] == [1]
    assert not journal_path(path).exists()


def test_what_is_there_is_not_overwritten_unasked(path: Path):
    record_prompts(path, [("a", "one")])
    before = path.read_bytes()
    with pytest.raises(UsageError, match="recording already, of 1 interactions"):
        Recording(Counting(), path)
    assert path.read_bytes() == before
    record_prompts(path, [("a", "two")], replace=True)
    assert [one.request.prompt for one in load_cassette(path)] == ["two"]


def test_a_broken_cassette_is_not_recorded_over(path: Path):
    path.parent.mkdir()
    path.write_text("interactions: [")
    with pytest.raises(FormatError, match="YAML"):
        Recording(Counting(), path, append=True)
    assert path.read_text() == "interactions: ["


async def test_a_conversation_goes_on_where_an_earlier_recording_ended(path: Path):
    await record(path, [ask("one")])
    await record(path, [ask("one", "answer 1", "two")], append=True)
    last = list(load_cassette(path))[-1]
    assert (last.request.after, len(last.request.messages)) == (1, 1)
    asked = [ask("one"), ask("one", "answer 1", "two")]
    assert await replay(path, asked) == ["answer 1", "answer 1"]


async def test_a_recording_that_is_interrupted_keeps_what_it_has_and_says_so(path: Path):
    recording = Recording(Counting(), path)
    with suppress(KeyboardInterrupt), recording:
        await recording.reply(ask("one"))
        raise KeyboardInterrupt
    assert recording.summary().interrupted
    tape = load_cassette(path)
    assert tape.header.metadata["interrupted"] is True
    assert (await Cassette(tape).reply(ask("one"))).text == "answer 1"


def test_a_summary_tells_what_it_cost(path: Path):
    from offbook.exchange.model import Usage
    from offbook.sources.cassette.recording import price_table

    price = price_table([("gpt-5", 1.0, 10.0)])
    assert price("gpt-5", Usage(1_000_000, 100_000)) == 2.0
    assert price("unheard-of", Usage(1, 1)) is None


async def test_without_a_price_there_is_no_cost_rather_than_none_to_pay(path: Path):
    with Recording(Counting(), path) as recording:
        await recording.reply(ask("one"))
    assert recording.summary().cost_dollars is None
    assert recording.summary().total_tokens == 12
    assert "total_cost_dollars" not in load_cassette(path).header.metadata


FULL = """
import asyncio, resource, sys
from pathlib import Path
from offbook.errors import RunError
from offbook.sources.cassette.journal import beside, load
from offbook.sources.recording import Recording
from tests.sources.cassette.talks import Counting, ask


async def main(path):
    source = Counting()
    recording = Recording(source, path)
    await recording.reply(ask("one"))
    room = beside(path).stat().st_size + 40  # for a part of the next line
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    for text in ("two", "three"):
        try:
            await recording.reply(ask(text))
        except RunError as error:
            print(error)
    assert source.asked == 2  # nothing is asked that cannot be kept
    try:
        recording.close()
    except RunError as error:
        print(error)
    assert not path.exists()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    print([item.response.output for item in load(path)])


asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fills a disk by a limit of the system")
def test_a_full_disk_is_told_of_and_what_was_recorded_before_is_not_lost(path: Path, root: Path):
    told = subprocess.run(
        [sys.executable, "-c", FULL, path], cwd=root, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count(f"{path}: cannot write the cassette: ") == 3
    assert told.stdout.count("make room for it") == 3
    assert told.stdout.endswith("['answer 1']\n")


def test_a_cursor_of_another_cassette_is_refused_before_anything_is_asked(path: Path):
    record_prompts(path, [("main", "one")])
    cursor = path.with_name("cursor")
    cursor.write_text("of another\n1\n")
    with pytest.raises(FormatError, match="belongs to another cassette"):
        Cassette(path, cursor=cursor)
