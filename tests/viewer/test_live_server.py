"""`offbook view --live`: traces while they grow, and a review, for this user's browser only."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from offbook.trace import Event
from offbook.viewer import LiveFeed, LiveServer, ReviewDesk
from offbook.workflows import list_pending

SECONDS = 120
HEADER = Event(0, "_meta.trace", {"format": "offbook.trace", "version": 1})
STATE = '{{"files": {{"a.txt": "{}\\n"}}}}'
Serve = Callable[..., LiveServer]


def write(path: Path, *events: Event) -> None:
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(event) + b"\n" for event in events)


def notes(count: int, start: int = 1) -> list[Event]:
    return [Event(n, "note", {"n": n}, n) for n in range(start, start + count)]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return a function that serves a path; `server.feed.poll()` reads what is new."""
    monkeypatch.delenv("CI", raising=False)
    servers: list[LiveServer] = []

    def start(path: Path = tmp_path) -> LiveServer:
        desk = ReviewDesk(lambda: list_pending([str(tmp_path)]))
        server = LiveServer(LiveFeed(path), desk)
        servers.append(server)
        return server.launch()

    yield start
    for server in servers:
        server.feed.end()
        server.close()


def read_stream(server: LiveServer, count: int, last: int = 0) -> list[tuple[int, str]]:
    """Return the next messages as a browser reads them: their ids and data."""
    headers = {"Last-Event-ID": str(last)} if last else {}
    messages: list[tuple[int, str]] = []
    with httpx.stream("GET", f"{server.url}events", headers=headers, timeout=SECONDS) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        number = 0
        for line in reply.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data":
                messages.append((number, value))
            if len(messages) == count:
                break
    return messages


def data_of(messages: list[tuple[int, str]]) -> list[Any]:
    return [msgspec.json.decode(data) for _, data in messages]


def test_events_arrive_while_the_trace_grows(tmp_path: Path, serve: Serve):
    path = tmp_path / "trace.jsonl"
    server = serve(path)  # it does not exist yet
    server.feed.poll()
    write(path, HEADER, *notes(2))
    server.feed.poll()
    write(path, *notes(1, start=3))
    server.feed.poll()
    records = data_of(read_stream(server, 5))
    assert records[1] == {"trace": {"name": "trace.jsonl", "path": str(path)}}
    assert records[2:] == [[n, "note", {"n": each}] for n, each in ((1, 1), (1, 2), (1, 3))]


def test_a_reconnection_gives_every_event_once(tmp_path: Path, serve: Serve):
    path = tmp_path / "trace.jsonl"
    server = serve(path)
    write(path, HEADER, *notes(50))
    server.feed.poll()
    first = read_stream(server, 20)
    write(path, *notes(50, start=51))
    server.feed.poll()
    rest = read_stream(server, 82, last=first[-1][0])
    assert [number for number, _ in first + rest] == list(range(1, 103))
    records = data_of(first + rest)[2:]  # after those of the page and of the trace
    assert [record[2]["n"] for record in records] == list(range(1, 101))


def test_an_incomplete_line_is_sent_when_it_is_complete(tmp_path: Path, serve: Serve):
    path = tmp_path / "trace.jsonl"
    write(path, HEADER, *notes(1))
    whole = msgspec.json.encode(notes(1, start=2)[0]) + b"\n"
    with path.open("ab") as file:
        file.write(whole[:20])
    server = serve(path)
    server.feed.poll()
    before = len(server.feed.lines)
    with path.open("ab") as file:
        file.write(whole[20:])
    server.feed.poll()
    assert [msgspec.json.decode(line) for line in server.feed.lines[before:]] == [
        [1, "note", {"n": 2}]
    ]


def test_traces_that_grow_at_the_same_time_keep_their_events(tmp_path: Path, serve: Serve):
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    server = serve(tmp_path)
    for number in (1, 2):
        for path in (one, two):
            events = notes(1, start=number)
            write(path, *([HEADER] if number == 1 else []), *events)
        server.feed.poll()
    records = [msgspec.json.decode(line) for line in server.feed.lines[1:]]
    assert records == [
        {"trace": {"name": "1.jsonl", "path": str(one)}},
        [1, "note", {"n": 1}],
        {"trace": {"name": "2.jsonl", "path": str(two)}},
        [1, "note", {"n": 1}],
        {"continue": 0},
        [1, "note", {"n": 2}],
        {"continue": 1},
        [1, "note", {"n": 2}],
    ]


def test_the_results_of_an_eval_run_arrive_as_cases(tmp_path: Path, serve: Serve):
    server = serve(tmp_path)
    (tmp_path / "results.jsonl").write_text('{"id":"a"}\n{"id":"b"')
    server.feed.poll()
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write("}\n")
    server.feed.poll()
    assert [msgspec.json.decode(line) for line in server.feed.lines[1:]] == [
        {"run": {"name": tmp_path.name}},
        {"case": {"id": "a"}},
        {"case": {"id": "b"}},
    ]


def test_the_end_of_the_server_ends_the_stream(tmp_path: Path, serve: Serve):
    server = serve(tmp_path)
    server.feed.end()
    with httpx.stream("GET", f"{server.url}events", timeout=SECONDS) as reply:
        assert "event: end" in reply.read().decode()


def test_the_page_follows_its_own_server(tmp_path: Path, serve: Serve):
    reply = httpx.get(serve(tmp_path).url)
    assert 'name="offbook-live" content="events"' in reply.text
    assert reply.headers["referrer-policy"] == "same-origin"
    assert reply.headers["cache-control"] == "no-store"


REFUSED: dict[str, tuple[str, dict[str, str]]] = {
    "no token": ("", {}),
    "another token": ("x" * 32 + "/", {}),
    "a longer token": ("{token}x/", {}),
    "another host": ("{token}/", {"Host": "evil.example"}),
    "a name that resolves to this host": ("{token}/", {"Host": "evil.example:{port}"}),
    "another port": ("{token}/", {"Host": "127.0.0.1:1"}),
    "another origin": ("{token}/", {"Origin": "https://evil.example"}),
    "the origin of a file": ("{token}/", {"Origin": "null"}),
    "another site": ("{token}/", {"Sec-Fetch-Site": "cross-site"}),
    "another server of this machine": ("{token}/", {"Sec-Fetch-Site": "same-site"}),
}


@pytest.mark.parametrize("path, headers", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("page", ["", "events", "review"])
def test_a_request_without_the_right_is_refused(
    tmp_path: Path, serve: Serve, path: str, headers: dict[str, str], page: str
):
    server = serve(tmp_path)
    fields = {"token": server.token, "port": server.port}
    address = f"http://127.0.0.1:{server.port}/{path.format(**fields)}{page}"
    sent = {name: value.format(**fields) for name, value in headers.items()}
    for method in ("GET", "POST"):
        # the stream has no end: the body is read after a refusal only
        with httpx.stream(method, address, headers=sent, timeout=SECONDS) as reply:
            assert reply.status_code == 403
            assert server.token not in reply.read().decode()


def test_the_server_listens_on_loopback_only(tmp_path: Path, serve: Serve):
    assert httpx.URL(serve(tmp_path).url).host == "127.0.0.1"


# --- The review


def propose(folder: Path, name: str, text: str = "new") -> None:
    (folder / f"{name}.json.proposed").write_text(STATE.format(text))
    (folder / f"{name}.json").write_text(STATE.format("old"))


def decide(server: LiveServer, action: str, name: str = "", **changes: str) -> httpx.Response:
    """Press a button of the page."""
    form = {"action": action, "token": server.token}
    if action == "accept-all":
        page = httpx.get(f"{server.url}review").text
        form["digest"] = re.findall('name="digest" value="([0-9a-f]+)"', page)[0]
    if name:
        [change] = [each for each in list_pending([str(server.feed.path)]) if each.name == name]
        form |= {"path": change.path, "digest": change.digest}
    address = f"{server.url}review"
    return httpx.post(address, data=form | changes, follow_redirects=True, timeout=SECONDS)


def test_a_change_is_accepted_rejected_and_undone_by_a_click(tmp_path: Path, serve: Serve):
    for name in ("one", "two"):
        propose(tmp_path, name)
    server = serve(tmp_path)
    assert "2 pending" in httpx.get(f"{server.url}review").text
    assert "one was accepted" in decide(server, "accept", "one").text
    assert (tmp_path / "one.json").read_text() == STATE.format("new")
    assert "Nothing is pending" in decide(server, "reject", "two").text
    assert not (tmp_path / "two.json.proposed").exists()
    decide(server, "undo")
    page = decide(server, "undo").text
    assert "2 pending" in page
    assert (tmp_path / "one.json").read_text() == STATE.format("old")


def test_all_changes_are_accepted_by_a_click(tmp_path: Path, serve: Serve):
    for name in ("one", "two"):
        propose(tmp_path, name)
    assert "Nothing is pending" in decide(serve(tmp_path), "accept-all").text
    assert (tmp_path / "two.json").read_text() == STATE.format("new")


def test_all_changes_are_not_accepted_if_one_came_after_the_page(tmp_path: Path, serve: Serve):
    propose(tmp_path, "one")
    server = serve(tmp_path)
    page = httpx.get(f"{server.url}review").text
    shown = re.findall('name="digest" value="([0-9a-f]+)"', page)[0]
    propose(tmp_path, "two")
    reply = decide(server, "accept-all", digest=shown)
    assert "other changes are pending than the page showed" in reply.text
    assert (tmp_path / "one.json.proposed").exists()


@pytest.mark.parametrize("token", ["", "x" * 32])
def test_a_form_without_the_token_decides_nothing(tmp_path: Path, serve: Serve, token: str):
    propose(tmp_path, "one")
    reply = decide(serve(tmp_path), "accept", "one", token=token)
    assert reply.status_code == 403
    assert (tmp_path / "one.json.proposed").exists()


def test_a_link_decides_nothing(tmp_path: Path, serve: Serve):
    propose(tmp_path, "one")
    server = serve(tmp_path)
    httpx.get(f"{server.url}review?action=accept-all&token={server.token}")
    assert (tmp_path / "one.json.proposed").exists()


def test_a_change_that_the_page_did_not_show_is_not_accepted(tmp_path: Path, serve: Serve):
    propose(tmp_path, "one")
    reply = decide(serve(tmp_path), "accept", "one", digest="of what the page showed before")
    assert "this change is not pending any more" in reply.text
    assert (tmp_path / "one.json").read_text() == STATE.format("old")


def test_in_ci_the_page_offers_and_accepts_no_decision(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    propose(tmp_path, "one")
    server = serve(tmp_path)
    monkeypatch.setenv("CI", "true")
    assert "<button" not in httpx.get(f"{server.url}review").text
    assert "snapshots cannot be approved in CI" in decide(server, "accept", "one").text
    assert (tmp_path / "one.json.proposed").exists()


def test_the_text_of_a_change_is_no_markup(tmp_path: Path, serve: Serve):
    propose(tmp_path, "one", "<script>alert(1)</script><img src=x>")
    reply = httpx.get(f"{serve(tmp_path).url}review")
    assert "<script" not in reply.text
    assert "<img" not in reply.text
    assert "&lt;script&gt;" in reply.text
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src")


# --- The command


def test_the_command_prints_its_address_serves_and_ends_by_ctrl_c(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    write(path, HEADER, *notes(1))
    command = [sys.executable, "-m", "offbook", "view", "--live", str(path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with httpx.stream("GET", f"{url}events", timeout=SECONDS) as reply:
                lines = reply.iter_lines()
                assert any('"note"' in line for line in lines)
                process.send_signal(signal.SIGINT)
                assert any(line == "event: end" for line in lines)
            _, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "offbook: interrupted"
    assert "Traceback" not in errors


def test_a_line_that_cannot_be_read_is_shown_once(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    write(path, HEADER, *notes(1))
    feed = LiveFeed(path)
    feed.poll()
    with path.open("ab") as file:
        file.write(b"no json\n")
    write(path, *notes(1, 2))
    feed.poll()
    feed.poll()
    shown = [msgspec.json.decode(line) for line in feed.lines]
    (faults,) = [line["faults"] for line in shown if "faults" in line]
    assert [fault["line"] for fault in faults] == [3]


def test_a_file_that_became_no_trace_is_shown_once(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    header = {"format": "offbook.trace", "version": 99}
    write(path, Event(0, "_meta.trace", header))
    feed = LiveFeed(path)
    feed.poll()
    feed.poll()
    shown = [msgspec.json.decode(line) for line in feed.lines]
    (faults,) = [line["faults"] for line in shown if "faults" in line]
    assert "99" in faults[0]["reason"]


def test_an_eval_run_without_results_is_shown(tmp_path: Path):
    (tmp_path / "run.json").write_text("{}")
    feed = LiveFeed(tmp_path)
    feed.poll()
    shown = [msgspec.json.decode(line) for line in feed.lines]
    assert shown[1:] == [{"run": {"name": tmp_path.name}}]


def test_an_unknown_page_is_not_found(tmp_path: Path, serve: Serve):
    assert httpx.get(f"{serve().url}other").status_code == 404


def test_a_stream_without_news_is_kept_alive(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("offbook.viewer.live_server.KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr("offbook.viewer.live_server.POLL_SECONDS", 0.01)
    with httpx.stream("GET", f"{serve().url}events", timeout=SECONDS) as reply:
        assert ": no news" in reply.iter_lines()


@pytest.mark.parametrize("size, status", [("", 400), ("many", 400), ("99999999", 413)])
def test_a_form_needs_a_size_within_the_limit(tmp_path: Path, serve: Serve, size: str, status: int):
    server = serve()
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 0), timeout=SECONDS) as client:
        head = f"POST {url.path}review HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n"
        client.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 %d" % status)
