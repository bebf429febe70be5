"""The server keeps its notes in its folder, whatever a model sends."""

import sys
from pathlib import Path

import pytest

from offbook import call, drive, say, when
from offbook.mcp import McpServer

SERVER = [sys.executable, str(Path(__file__).parents[1] / "notes_server.py"), "notes"]


@pytest.fixture
def server(offbook, tmp_path):
    return offbook.drive(McpServer(SERVER), cwd=tmp_path)


def test_a_note_is_written_and_read(server, tmp_path):
    run = server.run(
        when("Remember the milk", [
            call("list_notes"),
            call("write_note", {"name": "shopping", "text": "milk"}),
            call("read_note", {"name": "shopping"}),
            say("Noted."),
        ]),
    )  # fmt: skip
    assert run.results("list_notes")[0].text == "no notes"
    assert run.results("read_note")[0].text == "milk"
    assert (tmp_path / "notes" / "shopping.md").read_text() == "milk"


@pytest.mark.parametrize("name", ["../escape", "notes/other", "", "a" * 41])
def test_a_name_never_becomes_another_path(server, tmp_path, name):
    run = server.run(
        when("Write anywhere", [
            call("write_note", {"name": name, "text": "x"}),
            say("Sorry."),
        ]),
    )  # fmt: skip
    assert run.results("write_note")[0].is_error
    assert list(tmp_path.rglob("*.md")) == []


def test_a_note_is_not_overwritten(server):
    run = server.run(
        when("Write it twice", [
            call("write_note", {"name": "shopping", "text": "milk"}),
            call("write_note", {"name": "shopping", "text": "tea"}),
            call("read_note", {"name": "shopping"}),
            say("It was there."),
        ]),
    )  # fmt: skip
    assert run.results("write_note")[1].is_error
    assert run.results("read_note")[0].text == "milk"


def test_the_tools_are_those_that_models_know(server, offbook):
    run = server.run(when("List the notes", [call("list_notes"), say("None.")]))
    offbook.check_requests(run)


def test_the_recorded_conversation_still_works(offbook, tmp_path):
    server = offbook.drive(McpServer(SERVER), cwd=tmp_path, source=offbook.cassette("milk"))
    run = server.run("Remember the milk")
    assert run.tools == ["write_note", "read_note"]
    assert run.results("read_note")[0].text == "milk"


def writes_into_its_folder_only(run, folder):
    outside = [path for path in folder.rglob("*.md") if path.parent != folder / "notes"]
    assert outside == []


def test_no_arguments_break_it(offbook, tmp_path):
    def new_server():
        return drive(McpServer(SERVER), cwd=tmp_path), tmp_path

    offbook.explore(new_server, "Keep my notes", writes_into_its_folder_only, runs=8)
