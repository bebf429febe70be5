"""A killed recorder loses nothing, and a cassette has one recorder at a time."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from offbook.errors import FormatError, UsageError
from offbook.files import close_locked, try_lock
from offbook.sources.cassette import (
    Cassette,
    CassetteTitle,
    Interaction,
    Journal,
    JournalMerged,
    RecordedRequest,
    RecordedResponse,
    Recording,
    journal_path,
    load_cassette,
)
from tests.forked import run_python
from tests.sources.cassette.conversations import Counting, ask, record, record_prompts, replay


def item(identity: int, text: str) -> Interaction:
    request = RecordedRequest(prompt_hash="sha256:aa", prompt=text)
    return Interaction(id=identity, request=request, response=RecordedResponse(output=text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "refund.yaml"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked recorder")
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_killed_recorder_leaves_every_finished_interaction(
    tmp_path: Path, root: Path, times: int
):
    result = run_python("-m", "tests.sources.cassette.kill_recorder", tmp_path, times, 7, cwd=root)
    assert result.stdout == f"tried {times}\n", result.stdout + result.stderr


def test_a_second_recorder_is_refused_with_the_process_id_of_the_first(path: Path):
    with Recording(Counting(), path), pytest.raises(UsageError, match=f"process {os.getpid()}"):
        Recording(Counting(), path)
    with Recording(Counting(), path):
        pass


def test_a_reader_during_a_recording_sees_the_last_complete_cassette(path: Path):
    record_prompts(path, [("a", "one")])
    with Recording(Counting(), path, append=True) as recording:
        recording.record_output("two", RecordedResponse(output="2"), hat="a")
        assert len(load_cassette(path)) == 1
    assert len(load_cassette(path)) == 2


def test_only_the_owner_may_read_the_files(path: Path):
    record_prompts(path, [("a", "one")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Recording(Counting(), path, append=True):
        assert stat.S_IMODE(journal_path(path).stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_torn_last_line_is_not_an_interaction(path: Path):
    journal = Journal(path, CassetteTitle("refund.yaml"))
    journal.add(1, item(1, "one"))
    os.close(journal.file)  # as if the process had died here
    with journal_path(path).open("ab") as file:
        file.write(b'{"type":"finished","place":2,"interac')
    file = load_cassette(path)
    assert [item.response.output for item in file] == ["one"]
    assert file.header.metadata["interrupted"] is True


def test_a_secret_equal_to_a_key_of_the_journal_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_TOKEN", "response")
    record_prompts(path, [("a", "the response is here")])
    (stored,) = load_cassette(path)
    assert stored.request.prompt == "the [API_KEY] is here"
    assert stored.response.output == "output 1\n"


def test_a_crash_after_the_merge_adds_nothing_twice(path: Path):
    journal = Journal(path, CassetteTitle("refund.yaml"))
    journal.add(1, item(1, "one"))
    lines = journal_path(path).read_bytes()
    journal.close()
    mark = msgspec.json.encode(JournalMerged(load_cassette(path).digest)) + b"\n"
    journal_path(path).write_bytes(
        lines + mark
    )  # as if the process had died before it removed the journal
    assert [item.id for item in load_cassette(path)] == [1]
    assert not journal_path(path).exists()


def test_an_existing_cassette_is_overwritten_only_on_request(path: Path):
    record_prompts(path, [("a", "one")])
    before = path.read_bytes()
    with pytest.raises(UsageError, match="already has a recording of 1 interaction"):
        Recording(Counting(), path)
    assert path.read_bytes() == before
    record_prompts(path, [("a", "two")], replace=True)
    assert [item.request.prompt for item in load_cassette(path)] == ["two"]


def test_an_invalid_cassette_is_not_overwritten(path: Path):
    path.parent.mkdir()
    path.write_text("interactions: [")
    with pytest.raises(FormatError, match="YAML"):
        Recording(Counting(), path, append=True)
    assert path.read_text() == "interactions: ["


async def test_a_conversation_continues_an_earlier_recording(path: Path):
    await record(path, [ask("one")])
    await record(path, [ask("one", "answer 1", "two")], append=True)
    last = list(load_cassette(path))[-1]
    assert (last.request.after, len(last.request.messages)) == (1, 1)
    requests = [ask("one"), ask("one", "answer 1", "two")]
    assert await replay(path, requests) == ["answer 1", "answer 1"]


async def test_an_interrupted_recording_keeps_its_interactions_and_is_marked(path: Path):
    recording = Recording(Counting(), path)
    with suppress(KeyboardInterrupt), recording:
        await recording.reply(ask("one"))
        raise KeyboardInterrupt
    assert recording.summary().interrupted
    file = load_cassette(path)
    assert file.header.metadata["interrupted"] is True
    assert (await Cassette(file).reply(ask("one"))).text == "answer 1"


@pytest.mark.parametrize("killed", [False, True])
def test_a_recording_that_ends_before_its_first_reply_replaces_no_cassette(
    path: Path, *, killed: bool
):
    record_prompts(path, [("a", "one")])
    before = path.read_bytes()
    if killed:
        close_locked(Journal(path, CassetteTitle("refund.yaml"), fresh=True).file)
    else:
        recording = Recording(Counting(), path, replace=True)
        recording.interrupted = True
        recording.close({"command": "the metadata of the new one"})
    assert len(load_cassette(path)) == 1
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_price_table_computes_the_cost_of_a_reply():
    from offbook.exchange import Usage
    from offbook.sources.cassette import price_table

    price = price_table([("gpt-5", 1.0, 10.0)])
    assert price("gpt-5", Usage(1_000_000, 100_000)) == 2.0
    assert price("unknown", Usage(1, 1)) is None


async def test_without_a_price_the_cost_is_unknown_and_not_zero(path: Path):
    with Recording(Counting(), path) as recording:
        await recording.reply(ask("one"))
    assert recording.summary().cost_dollars is None
    assert recording.summary().total_tokens == 12
    assert "total_cost_dollars" not in load_cassette(path).header.metadata


FULL = """
import asyncio, resource, sys
from pathlib import Path
from offbook.errors import RunError
from offbook.sources.cassette.journal import journal_path, load_cassette
from offbook.sources.cassette.recording import Recording
from tests.sources.cassette.conversations import Counting, ask


async def main(path):
    source = Counting()
    recording = Recording(source, path)
    await recording.reply(ask("one"))
    room = journal_path(path).stat().st_size + 40  # enough for a part of the next line
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    for text in ("two", "three"):
        try:
            await recording.reply(ask(text))
        except RunError as error:
            print(error)
    assert source.asked == 2  # no request is sent whose reply cannot be stored
    try:
        recording.close()
    except RunError as error:
        print(error)
    assert not path.exists()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    print([item.response.output for item in load_cassette(path)])


asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the file size")
def test_a_full_disk_is_reported_and_loses_nothing_recorded_before(path: Path, root: Path):
    result = subprocess.run(
        [sys.executable, "-c", FULL, path], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(f"{path}: cannot write the cassette: ") == 3
    assert result.stdout.count("free some disk space") == 3
    assert result.stdout.endswith("['answer 1']\n")


def test_a_cursor_of_another_cassette_is_refused_before_the_first_request(path: Path):
    record_prompts(path, [("main", "one")])
    cursor = path.with_name("cursor")
    cursor.write_text("another digest\n1\n")
    with pytest.raises(FormatError, match="belongs to another cassette"):
        Cassette(path, cursor=cursor)


def test_the_next_recorder_keeps_what_a_killed_one_has_finished(path: Path):
    killed = Journal(path, CassetteTitle("refund.yaml"))
    killed.add(1, item(1, "one"))
    close_locked(killed.file)  # as if the process had died here
    journal = Journal(path, CassetteTitle("refund.yaml"))
    journal.add(1, item(2, "two"))
    journal.close()
    assert [stored.response.output for stored in load_cassette(path)] == ["one", "two"]


def test_a_line_that_is_no_json_is_skipped(path: Path):
    journal = Journal(path, CassetteTitle("refund.yaml"))
    os.write(journal.file, b"\xff\n{}\n")
    journal.add(1, item(1, "one"))
    journal.close()
    assert [stored.response.output for stored in load_cassette(path)] == ["one"]


@pytest.mark.parametrize("end", ["close", "discard"])
def test_nothing_is_added_to_a_journal_that_was_ended(path: Path, end: str):
    journal = Journal(path, CassetteTitle("refund.yaml"))
    for _ in range(2):
        getattr(journal, end)()
    with pytest.raises(UsageError, match="the recording is closed"):
        journal.add(1, item(1, "one"))
    assert not journal_path(path).exists()


def test_a_recording_after_a_killed_one_does_not_mix_with_it(path: Path):
    killed = Journal(path, CassetteTitle("refund.yaml"))
    killed.add(1, item(1, "one"))
    close_locked(killed.file)  # as if the process had died here
    assert not path.exists()
    with pytest.raises(UsageError, match="already has a recording of 1 interaction"):
        Recording(Counting(), path)


def test_a_journal_that_its_owner_removed_meanwhile_is_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    attempts: list[int] = []

    def lock_late(file: int) -> bool:
        attempts.append(file)
        if len(attempts) == 1:
            journal_path(path).unlink()
        return try_lock(file)

    monkeypatch.setattr("offbook.sources.cassette.journal.try_lock", lock_late)
    journal = Journal(path, CassetteTitle("refund.yaml"))
    assert len(attempts) == 2
    assert journal_path(path).stat().st_size > 0
    journal.discard()


def test_a_journal_that_we_may_not_write_is_merged_in_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    record_prompts(path, [("a", "zero")])
    killed = Journal(path, CassetteTitle("refund.yaml"))
    killed.add(1, item(2, "one"))
    close_locked(killed.file)
    before = path.read_bytes(), journal_path(path).read_bytes()
    real = os.open

    def open_to_read(name: Path, flags: int, *rest: int) -> int:
        if flags & os.O_RDWR:  # as on a disk that is mounted read-only
            raise OSError(errno.EROFS, "read-only file system")
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", open_to_read)
    file = load_cassette(path)
    assert [stored.response.output for stored in file] == ["output 1\n", "one"]
    assert file.header.metadata["interrupted"] is True
    monkeypatch.undo()
    assert (path.read_bytes(), journal_path(path).read_bytes()) == before


async def test_a_secret_equal_to_a_key_is_hidden_in_every_message(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_TOKEN", "response")
    await record(path, [ask("the response is here")])
    (stored,) = load_cassette(path)
    assert [message.text for message in stored.request.messages] == ["the [API_KEY] is here"]
