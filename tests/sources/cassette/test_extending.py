"""A cassette grows with its agent, and outdated replies do not stay in it unnoticed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from offbook.determinism import FrozenClock
from offbook.errors import ReplayMismatch, UsageError
from offbook.exchange import History, Reply, Request, Text, Tool, user
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.dialects.provider_responses import (
    interrupted_stream,
)
from offbook.exchange.tool_track import HttpCall
from offbook.sources.cassette import Cassette, Recording, Rerecording, load_cassette
from offbook.sources.mocks import MockRecording
from tests.sources.cassette.conversations import Counting, answer, ask, record, replay

TURNS = [ask("one"), ask("one", "answer 1", "two"), ask("one", "answer 1", "two", "answer 2", "go")]


async def test_an_extended_cassette_replays_what_it_has_and_records_what_is_new(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, TURNS[:2])
    model = Counting()
    with Recording(model, path, append=True) as recording:
        texts = [await answer(recording, request) for request in TURNS]
    assert (texts, model.asked) == (["answer 1", "answer 2", "answer 1"], 1)
    assert (recording.summary().interactions, recording.summary().replayed) == (1, 2)
    assert await replay(path, TURNS) == texts


async def test_a_new_interaction_does_not_overlap_with_the_known_ones(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, [ask("one")], clock=FrozenClock())
    await record(path, [ask("one"), ask("two")], append=True, clock=FrozenClock())
    first, second = load_cassette(path).entries
    assert (second.started_ms or 0) > (first.started_ms or 0) + first.duration_ms


async def test_interactions_that_an_extending_run_did_not_use_are_listed(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, [ask("one"), ask("two"), ask("three")])
    with Recording(Counting(), path, append=True) as recording:
        await recording.reply(ask("one"))
        await recording.reply(ask("zwei"))
    assert recording.unused == [2, 3]


SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"model": "gpt-6"},
    "system": {"system": "Be brief."},
    "tools": {"tools": (Tool("find", "Finds.", {"type": "object"}),)},
    "temperature": {"parameters": {"temperature": 0.5}},
}


def with_settings(text: str, **settings: Any) -> Request:
    fields: dict[str, Any] = {"model": "gpt-5", **settings}
    return Request(History([user(text)]), **fields)


@pytest.mark.parametrize("name", SETTINGS)
async def test_after_a_change_of_settings_all_interactions_are_named_and_replaced(
    tmp_path: Path, name: str
):
    path = tmp_path / "chat.yaml"
    await record(path, [with_settings(text) for text in ("one", "two", "three")])
    source = Cassette(path, record_command="offbook record chat.yaml --only {number} -- agent")
    with pytest.raises(ReplayMismatch) as raised:
        await source.reply(with_settings("one", **SETTINGS[name]))
    message = str(raised.value)
    assert f"Differs at: $.{name}" in message
    assert "Recorded with the old request, and outdated, too: 2-3" in message
    assert "offbook record chat.yaml --replace -- agent" in message


@pytest.mark.parametrize("name", SETTINGS)
async def test_recording_one_interaction_with_other_settings_is_refused(tmp_path: Path, name: str):
    path = tmp_path / "chat.yaml"
    await record(path, [with_settings("one"), with_settings("two")])
    before, model = path.read_bytes(), Counting()
    with (
        pytest.raises(UsageError, match=f"{name} changed since the recording, so that all 2"),
        Rerecording(path, 1, model) as source,
    ):
        await source.reply(with_settings("one", **SETTINGS[name]))
    assert (path.read_bytes(), model.asked) == (before, 0)


async def test_a_changed_message_in_a_conversation_outdates_the_rest_of_it(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, [*TURNS, ask("another conversation")])
    with pytest.raises(ReplayMismatch, match=r"outdated, too: 2-3\n.*replace=True"):
        await Cassette(path).reply(ask("eins"))
    with Rerecording(path, 1, Counting()) as source:
        assert source.outdated == [2, 3]


async def test_an_interaction_that_is_recorded_again_keeps_its_other_tracks(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    with Recording(Counting(), path, tracks="all") as recording:
        await recording.reply(ask("one"))
        assert recording.http_track is not None
        recording.http_track.add(HttpCall("GET", "https://shop.test"), HttpResponse(200, {}, b"7"))
    before = load_cassette(path)
    with Rerecording(path, 1, Counting(Reply((Text("Fresh."),)))) as source:
        await source.reply(ask("one"))
    after = load_cassette(path)
    (old,), (new,) = before, after
    assert new.response.output != old.response.output
    assert (new.http, len(new.http), after.header.clock) == (old.http, 1, before.header.clock)
    ends = [entry.duration_ms for file in (before, after) for entry in file.entries]
    assert ends[0] == ends[1]


async def test_an_interrupted_stream_does_not_replace_an_interaction(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, [ask("one")])
    before = path.read_bytes()
    with Rerecording(path, 1, Counting(interrupted_stream())) as source:
        assert "the stream ended" in await answer(source, ask("one"))
    assert (source.recorded, source.interrupted) == (False, True)
    assert path.read_bytes() == before


async def test_an_interrupted_stream_is_not_recorded_as_a_mock(tmp_path: Path):
    recording = MockRecording(Counting(interrupted_stream(), Reply((Text("Hi"),))), tmp_path / "m")
    for _ in range(2):
        await answer(recording, ask("one"))
    assert [line["text"] for line in recording.lines] == ["Hi"]


async def test_a_recording_older_than_its_limit_is_refused(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, [ask("one")])
    assert await replay(path, [ask("one")], max_age=timedelta(days=30)) == ["answer 1"]
    recorded = load_cassette(path).recorded
    assert recorded is not None
    old = path.read_text().replace(
        f"{recorded:%Y-%m-%d}", f"{recorded - timedelta(days=31):%Y-%m-%d}"
    )
    path.write_text(old)
    with pytest.raises(UsageError, match="31 days old, the limit is 30 days") as raised:
        Cassette(path, max_age=timedelta(days=30))
    assert f"Recording(Live(), {str(path)!r}, replace=True)" in str(raised.value)


async def test_a_recording_without_a_date_has_an_unknown_age(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    await record(path, [ask("one")])
    path.write_text(path.read_text().replace("# recorded:", "#"))
    with pytest.raises(UsageError, match="the age of the recording is unknown"):
        Cassette(path, max_age=timedelta(days=30))
